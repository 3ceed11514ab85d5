"""Mixing with compressed messages: differences to references, error feedback, and the effects of loss on them."""
