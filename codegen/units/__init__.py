"""Units as text: programs, planned forwards, and how a model is given them."""
