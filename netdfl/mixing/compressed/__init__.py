"""Mixing with compressed messages: differences to reference vectors, error feedback, and the effects of loss."""
