"""Emulation below TCP: namespaces and devices, the engines that carry or shape packets, and their calibration."""
