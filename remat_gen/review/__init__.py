"""Generated modules that are there: read, traced again, checked, compared."""
