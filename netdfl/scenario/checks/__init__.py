"""Checks for mistakes that only show between two parts of a scenario, each with its place and remedy."""
