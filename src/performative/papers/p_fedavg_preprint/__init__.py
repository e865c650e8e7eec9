"""Experiments of the preprint of P-FedAvg (Jin et al. 2023): one TOML file per figure, and their functions."""
