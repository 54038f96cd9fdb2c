"""Losses, answers and tasks of models, as they are or with their blocks rearranged."""
