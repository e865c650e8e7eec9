"""A client's real people: where its model goes, and where its rows come from."""
