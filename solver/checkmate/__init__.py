"""Checkmate (Jain et al. 2020): the integer program and its rounded relaxation."""
