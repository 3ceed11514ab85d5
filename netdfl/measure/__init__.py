"""Measurements of the minimum that a run has found: curvature, landscape and gap of its models."""
