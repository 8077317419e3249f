"""Simulate a GPU in every Python process that has this folder in PYTHONPATH and uses torch."""

from simulated_gpu import install

install()
