"""Strategies from papers: Chen et al., Griewank and Walther, Feng and Huang."""
