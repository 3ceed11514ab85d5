"""Graphs, their schedules, mixing weights and neighbor selection: who may talk to whom, and how much it counts."""
