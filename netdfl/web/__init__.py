"""Runs as web pages at an address of this machine, served directly from run directories."""
