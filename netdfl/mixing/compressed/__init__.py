"""Mixing with compressed messages: differences to vectors known at both ends, error feedback, the effects of loss."""
