"""Graph and schedule to source text."""
