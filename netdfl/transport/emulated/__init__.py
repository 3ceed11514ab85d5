"""The emulation of a scenario's links on top of a real transport (gRPC), which carries the messages."""
