"""Populations and losses used only by environments of the suite."""
