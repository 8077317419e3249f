"""Pictures of the memory timeline."""
