"""What every layer stands on: checks, messages, counters, files. Private."""
