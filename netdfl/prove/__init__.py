"""Proofs within bounds: all schedules with a limited number of faults are played on the real node code."""
