"""Runs as pages at an address of this machine: served from run directories, which stay the only source."""
