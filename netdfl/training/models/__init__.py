"""The models of the published settings, and the construction of a model from a seed."""
