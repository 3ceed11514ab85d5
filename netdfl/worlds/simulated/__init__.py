"""The whole fleet in one process, on a virtual clock."""
