"""Proofs within bounds: every schedule of at most so many faults, played on the node code as it is."""
