"""Core types, clock, named random streams, errors and units."""
