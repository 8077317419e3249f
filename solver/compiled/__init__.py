"""Stretches of a schedule that run as one compiled operation, and what that does to memory."""
