"""The claims of the lessons, one experiment a file."""
