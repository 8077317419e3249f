"""What `side_by_side.py` is made of: models, contestants, measurements, tables, a picture."""
