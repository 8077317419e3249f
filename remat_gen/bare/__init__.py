"""Bare graphs from JSON, scheduled without a model."""
