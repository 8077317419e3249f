"""Strategies offer programs for a budget, the replay judges, and the best one stays."""
