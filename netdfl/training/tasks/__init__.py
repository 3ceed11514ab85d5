"""The parts of a task: its losses and figures, and the contract of a task of one's own."""
