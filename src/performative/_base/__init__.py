"""The private base of every layer: checks, messages, counters, files."""
