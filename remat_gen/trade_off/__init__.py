"""The trade-off of memory and time: many budgets and strategies, and what others offer."""
