"""Placeholder."""
def models_of(*a): raise NotImplementedError
