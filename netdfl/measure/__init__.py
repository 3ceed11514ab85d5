"""Measurements of the minimum that a run has found: its models' curvature, loss landscape and generalization gap."""
