"""The models of published experiments, and the construction of a model from a seed."""
