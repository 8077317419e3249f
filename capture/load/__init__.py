"""A model file to a model and the arguments of one training step."""
