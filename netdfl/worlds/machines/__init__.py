"""A fleet on many machines, which an engine gives: Slurm, Ray, or one of the user's own."""
