"""What a first step, or one after an evaluation, makes of a model: found by runs for real."""
