"""The schedule: `events:` of a scenario as one flat, sorted list of changes to links and nodes with their times."""
