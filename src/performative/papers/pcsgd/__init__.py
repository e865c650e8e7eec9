"""Experiments of PCSGD and DiceSGD (Li, Yemini and Wai 2024): one TOML file each, and the functions they call."""
