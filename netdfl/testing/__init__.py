"""Conformance suites and toy problems, shipped for those who write own parts."""
