"""remat-gen: activation rematerialisation as source code."""

__version__ = "0.1.0"
