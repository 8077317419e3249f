"""Jinja templates of the generated module."""
