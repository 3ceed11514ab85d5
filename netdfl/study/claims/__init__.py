"""The claims of papers as data, each tested by paired differences over seeds."""
