"""The replay of a recorded simulated run: stopped at any virtual time, changed, and compared with other runs."""
