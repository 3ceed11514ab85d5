"""Compressors: they encode a flat vector of numbers in few bytes and decode it again, with a bounded error."""
