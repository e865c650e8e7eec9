"""A client's real people: where its model is published, and where its rows come from."""
