"""Keep a schedule stable: from one plan to the next, and from one layer to those like it."""
