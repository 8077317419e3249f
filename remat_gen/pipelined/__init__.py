"""The stages of a pipeline: a plan each, within the memory of the device that has them."""
