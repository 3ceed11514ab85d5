"""Graphs, their schedules, mixing weights and neighbor selection: the channels of each round, and their weights."""
