"""Compressors: a flat vector to few bytes and back."""
