"""Experiments of PCSGD and DiceSGD (Li, Yemini and Wai 2024): one TOML file a figure, and the functions that they name."""
