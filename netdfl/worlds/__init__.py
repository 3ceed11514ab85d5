"""The worlds in which a fleet can run, each with its own place of nodes and its own time."""
