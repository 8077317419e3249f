"""Planning by units: one budget over all of them and what lies between."""
