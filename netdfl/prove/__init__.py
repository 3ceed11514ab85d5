"""Proofs within bounds: the real node code runs in simulation under every schedule with a limited number of faults."""
