"""The replay of a simulated run: stopped at any virtual moment, changed, and compared with other runs."""
