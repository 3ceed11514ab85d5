"""The export of a run to other tools: traces, trackers, graphs, tables."""
