"""The original and the planned model, run and compared."""
