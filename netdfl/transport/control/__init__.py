"""Calls beside the messages: between supervisor and nodes, and among nodes that have no supervisor."""
