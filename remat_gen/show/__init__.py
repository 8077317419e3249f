"""Results for people: the last lines of a run, and tables in a notebook."""
