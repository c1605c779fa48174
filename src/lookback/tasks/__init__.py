"""Tasks: `base.py` is the door that all share, every other file one task."""
