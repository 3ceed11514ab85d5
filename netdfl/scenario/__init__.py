"""Scenarios: the schema, the loader with its checks, and the explanation of a fleet before it runs."""
