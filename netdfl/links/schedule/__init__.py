"""The schedule: `events:` of a scenario as one flat, sorted list of what happens to links and nodes, and when."""
