"""Blame: which nodes, links and events cost a run its time, found by reruns without each, random draws unchanged."""
