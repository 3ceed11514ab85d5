"""The diagnosis of stalled fleets, and the fidelity of emulations."""
