"""Submodules that are planned one by one, and what lies between them, which stays eager."""
