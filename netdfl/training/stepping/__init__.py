"""How far a local step goes: schedules of the rate, and torch's optimizers."""
