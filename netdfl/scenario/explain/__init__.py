"""Explanations of a scenario before it runs, and lists of all parts that a scenario can name."""
