"""The parts of a task: its losses and metrics, and the contract of a user's own task."""
