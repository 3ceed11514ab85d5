"""Cycle times of overlays over shared networks: the max-plus formula, and simulated fleets beside it."""
