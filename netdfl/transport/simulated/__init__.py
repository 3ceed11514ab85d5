"""The simulation of a scenario's links in virtual time, for all nodes of a fleet in one process."""
