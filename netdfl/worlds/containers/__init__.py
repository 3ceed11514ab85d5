"""A container for each node."""
