"""Experiments of the preprint of P-FedAvg (Jin et al. 2023): one TOML file a figure, and the functions that they name."""
