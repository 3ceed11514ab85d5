"""The record of a run: rows in a store, files in a directory, the result and its verdict."""
