"""Local training: tasks, the local solvers that make a node's steps, data and models."""
