"""The environments: one file per family, one function per environment."""
