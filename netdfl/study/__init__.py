"""Studies, which make many runs: sweeps over scenarios, and reproductions of published tables."""
