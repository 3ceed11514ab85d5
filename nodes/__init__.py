"""What one machine needs to be a node: how it is set up and started."""
