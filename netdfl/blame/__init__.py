"""Blame: which nodes, links and events cost a run its time, found by runs without each of them under the same luck."""
