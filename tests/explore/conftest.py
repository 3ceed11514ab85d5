"""A small fleet that stalls at the first loss."""

from __future__ import annotations

from typing import Any

import pytest

SMALL: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "small",
    "nodes": 4,
    "rounds": 6,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 2},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"for": "all", "deadline": "none"},
    "links": {"default": {"latency": "5ms"}},
}


@pytest.fixture
def small() -> dict[str, Any]:
    """Its scenario, to be changed."""
    return dict(SMALL)
