"""The runners of a study's runs: an interface of three methods, and the local implementation."""
