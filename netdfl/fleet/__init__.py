"""Worlds: how a scenario becomes a fleet that runs."""
