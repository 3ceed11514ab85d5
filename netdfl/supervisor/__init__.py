"""The supervision of a fleet: each policy is written once, for virtual and for real time."""
