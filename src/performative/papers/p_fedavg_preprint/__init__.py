"""Experiments of the preprint of P-FedAvg (Jin et al. 2023): one TOML file a figure, and their functions."""
