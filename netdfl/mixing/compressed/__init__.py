"""Mixing with compressed messages: differences to references, error feedback, and what loss does to them."""
