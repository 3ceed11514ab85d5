"""The supervision of a fleet, with each policy written once for virtual and real time."""
