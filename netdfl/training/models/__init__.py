"""The models of the published settings, and how a model is built from a seed."""
