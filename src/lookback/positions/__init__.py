"""Position encodings: `base.py` has the doors, every other file one encoding."""
