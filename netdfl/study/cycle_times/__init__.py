"""Cycle times of overlays over shared networks: by the max-plus formula, and by simulated fleets for comparison."""
