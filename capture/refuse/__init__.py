"""What no plan can do, refused with the user's line and what to write instead."""
