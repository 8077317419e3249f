"""The models of the zoo, by where they come from."""
