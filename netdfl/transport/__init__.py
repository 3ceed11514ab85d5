"""Transports: what carries messages between nodes."""
