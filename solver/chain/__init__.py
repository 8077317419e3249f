"""The dynamic program over the chain of blocks, and all programs that come of it."""
