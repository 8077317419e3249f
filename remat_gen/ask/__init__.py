"""What the user asks for: options, budgets, pins, pyproject.toml."""
