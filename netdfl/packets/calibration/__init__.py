"""The tcp link model held to real TCP: messages are timed in namespaces, and the model is fitted to them."""
