"""Mixing: the messages of a node in a round, and the update of its model from those that arrive. Sans-I/O."""
