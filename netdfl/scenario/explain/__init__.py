"""Explanations of a scenario before it runs, and lists of everything that a scenario can name."""
