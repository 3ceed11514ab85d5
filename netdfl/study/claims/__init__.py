"""The claims of papers as data, tested by paired differences over seeds."""
