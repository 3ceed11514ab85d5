"""A measured twin: a fleet's own record gives the latencies, rates and compute times of a simulated one."""
