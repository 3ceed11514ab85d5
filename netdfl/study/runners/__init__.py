"""The runners that make a study's runs: an interface of three methods, and its implementations."""
