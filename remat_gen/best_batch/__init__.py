"""The best batch for a device's memory: batch and schedule chosen together."""
