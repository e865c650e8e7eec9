"""Members of a federation on hosts of their own: they are invited, ask to be registered, are approved, and leave."""
