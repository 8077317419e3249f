"""The exact search: an integer program over a few stages, refined until its plan is a schedule."""
