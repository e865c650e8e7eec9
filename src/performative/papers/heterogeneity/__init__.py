"""Experiments of the slides on heterogeneity (Joshi): one TOML file per figure, and the functions they call."""
