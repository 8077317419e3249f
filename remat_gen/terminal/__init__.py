"""Progress, interruption and errors, on stderr."""
