"""What the model sees: assembly, budgets, preview."""
