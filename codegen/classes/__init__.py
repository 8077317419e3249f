"""Blocks as classes: alike ones are written once, and all are named after what they are."""
