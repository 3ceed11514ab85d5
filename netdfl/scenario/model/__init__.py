"""The schema of scenario files: its blocks, and the parts to choose from."""
