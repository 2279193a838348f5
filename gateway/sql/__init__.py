"""SQL over topics, and the search for a record by its key: what worker processes do, and the broker's side of it."""
