"""Exploration: many simulated runs of one scenario, in search of failures that nobody planted."""
