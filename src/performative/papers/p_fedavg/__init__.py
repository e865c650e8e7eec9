"""Experiments of P-FedAvg (Jin et al. 2024): one TOML file a figure, and the functions that they name."""
