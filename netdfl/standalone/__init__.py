"""Nodes that run without a supervisor, and the collection of their records into one run."""
