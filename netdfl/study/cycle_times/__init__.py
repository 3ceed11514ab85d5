"""Cycle times (mean times of a round) of overlays over shared networks, by a formula and by simulated fleets."""
