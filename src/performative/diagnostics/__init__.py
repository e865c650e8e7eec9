"""What a run alone does not show: the drift of clients, the skew of selection."""
