"""Graphs, their schedules, mixing weights and neighbor selection: who sends to whom, and with which weight."""
