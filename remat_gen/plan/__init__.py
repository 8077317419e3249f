"""A model file to a generated module: load, trace, profile, solve, replay, emit, write."""
