"""A run for the tools that people have: traces, trackers, graphs, tables."""
