"""What a run leaves: rows in a store, files in a directory, and the result with its verdict."""
