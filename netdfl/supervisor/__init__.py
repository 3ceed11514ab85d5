"""The supervision of a fleet of nodes: starts, stalls, restarts, evaluation; the same for simulated and real nodes."""
