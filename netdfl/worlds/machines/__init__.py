"""A fleet on many machines, which an engine provides: Slurm, Ray, or a user's own."""
