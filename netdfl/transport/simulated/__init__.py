"""The scenario's links in virtual time: all messages of a fleet in one process."""
