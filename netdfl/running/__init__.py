"""The running of a scenario: from its preparation, by the supervision of its nodes, to the verdict and the models."""
