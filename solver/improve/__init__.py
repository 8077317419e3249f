"""Improve a program within a budget: add, drop and move re-runs on exact figures."""
