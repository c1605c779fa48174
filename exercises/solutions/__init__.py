"""The exercises, solved: to compare with, once your own file passes."""
