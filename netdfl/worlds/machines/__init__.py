"""A fleet on many machines, which an engine provides: Slurm, Ray, or one of the user's own."""
