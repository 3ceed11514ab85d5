"""Studies: sweeps over scenarios and reproduction of published tables."""
