"""How tensors lie in memory, where a trace on fake tensors would have it otherwise."""
