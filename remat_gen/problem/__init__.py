"""Graph and costs to the scheduling problem, at the example's sizes and at smaller ones."""
