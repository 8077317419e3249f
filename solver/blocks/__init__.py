"""Cut the forward operations into a chain of blocks; z3 finds the options of each."""
