"""Explanations of a scenario before it runs, and lists of all components, such as algorithms, that it can name."""
