"""Experiments of the slides on heterogeneity (Joshi): one TOML file a figure, and the functions that they name."""
