"""Values, views and calls as Python text."""
