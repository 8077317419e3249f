"""FX nodes: their storages, sizes, and what they remember of the user's program."""
