"""Apart from the user's code: seeds, state, imports, output, garbage."""
