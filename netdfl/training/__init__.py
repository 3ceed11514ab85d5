"""Local training: tasks, solvers, data and models."""
