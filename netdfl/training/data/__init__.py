"""Datasets, where they are fetched from, how they are shared out, and how inputs are augmented."""
