"""How far a local step goes: schedules of the rate, and which optimizer."""
