"""What operations cost: measured here, or modelled for a device that is not."""
