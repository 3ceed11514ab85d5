"""Nodes without a supervisor, and the collection of their records."""
