"""Our own new results: one TOML file per figure, and the functions they call."""
