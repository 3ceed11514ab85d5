"""Emulation of links below TCP: namespaces and devices, the engines that carry or shape packets, their calibration."""
