"""Mixing: what a node sends and what it makes of what comes. Sans-I/O."""
