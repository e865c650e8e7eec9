"""New results of ours: one TOML file a figure, and the functions that they name."""
