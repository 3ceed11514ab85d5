"""What looks after a fleet: each policy once, for virtual and for real time."""
