"""A run from its scenario to its verdict."""
