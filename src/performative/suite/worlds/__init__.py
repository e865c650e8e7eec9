"""The environments: a file a family, a function an environment."""
