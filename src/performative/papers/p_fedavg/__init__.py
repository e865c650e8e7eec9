"""Experiments of P-FedAvg (Jin et al. 2024): one TOML file per figure, and the functions they call."""
