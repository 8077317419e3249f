"""The generated module: the user's source, the planned forward, the blocks, the guards."""
