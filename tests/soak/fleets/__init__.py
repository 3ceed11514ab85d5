"""Fleets with decided truth: how they are drawn, run, played on, and judged."""
