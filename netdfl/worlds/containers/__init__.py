"""The world with a container for each node."""
