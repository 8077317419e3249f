"""What Python reads of tensors' values: answered in a trace as in the example, and checked."""
