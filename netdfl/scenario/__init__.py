"""Scenarios: the schema, the loader with its checks, and what a fleet will be before it runs."""
