"""Layers that a model repeats: a few are traced, and the graph of all is made from theirs."""
