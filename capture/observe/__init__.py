"""Forward runs before the trace: what it reads and returns, whether it repeats itself."""
