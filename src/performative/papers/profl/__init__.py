"""Experiments of PROFL (Zheng et al. 2024): one TOML file per figure, and the functions they call."""
