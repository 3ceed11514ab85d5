"""A twin of a measured fleet: a simulated fleet with the latencies, rates and compute times of a recorded run."""
