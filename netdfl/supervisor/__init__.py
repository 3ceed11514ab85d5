"""The supervision of a fleet: starts, stalls, restarts, evaluation. Each policy is written once for all worlds."""
