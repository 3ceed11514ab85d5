"""Calibration of the tcp link model: messages are timed over real TCP in namespaces, and the model is fitted."""
