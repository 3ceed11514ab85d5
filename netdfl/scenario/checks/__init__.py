"""Checks for mistakes that only show between two parts of a scenario; each is reported with its place and a remedy."""
