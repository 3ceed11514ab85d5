"""The calibration of the TCP link model: messages are timed over real TCP, and the model is fitted."""
