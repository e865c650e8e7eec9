"""Populations and losses that only environments of the suite need."""
