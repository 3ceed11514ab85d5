"""Compressors: they encode a flat vector in few bytes, and decode it again."""
