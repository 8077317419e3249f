"""Best-first search over states: which values are there, which operations have run."""
