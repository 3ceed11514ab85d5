"""A simulated run played again, stopped at any virtual moment, changed, and compared with another."""
