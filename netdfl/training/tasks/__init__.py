"""What a task is made of: its losses and figures, and the contract of a task of one's own."""
