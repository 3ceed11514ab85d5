"""The schema of scenario files: its blocks, and the components (algorithms, datasets ...) to choose from."""
