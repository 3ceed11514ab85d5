"""Transports: the carriers of messages between nodes."""
