"""Twins of measured fleets: simulated fleets with the latencies, rates and compute times of a recorded run."""
