"""Mixing: a node's messages in a round, and the update of its model from those that arrive. No I/O is done here."""
