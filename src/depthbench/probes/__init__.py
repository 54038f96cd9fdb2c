"""How much of its depth a model uses."""
