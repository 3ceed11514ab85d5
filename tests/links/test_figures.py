"""What rules come to in the long run: as the rules themselves do, and as numbers that JSON can hold."""

from __future__ import annotations

import json

import numpy as np
import pytest

from netdfl.links.rules.figures import comes_to, figures, say
from netdfl.links.rules.latency import LATENCIES
from netdfl.links.spec import choose

MS = 10**6


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("loss", {"model": "gilbert_elliott", "p": 0.02, "r": 0.3}, "loses 6.25%, 3.33 in a row"),
        ("loss", "5%", "loses 5%, 1.05 in a row"),
        ("loss", 1.0, "loses 100%, without end"),
        ("loss", 0.0, "loses 0%, 0 in a row"),
        ("loss", {"model": "trace", "losses": [1, 0, 1, 1, 0, 1]}, "loses 66.7%, 2 in a row"),
        ("loss", {"model": "trace", "losses": [1]}, "loses 100%, without end"),
        ("loss", {"model": "drop_list", "messages": [{"round": 3}]}, "loses 1 listed"),
        ("latency", "20ms", "mean 20 ms"),
        (
            "rate",
            {"rate": "1Mbit", "burst": "4KiB", "queue": {"messages": 10}},
            "1 Mbit/s, bucket 4.1 kB, queue 10 messages",
        ),
        ("reorder", {"probability": 0.1, "delay": "30ms"}, "10%, by 30ms"),
        ("duplicate", "2%", "2%"),
    ],
)
def test_what_a_rule_comes_to(key: str, value: object, found: str) -> None:
    chosen = choose(key, value)
    assert chosen is not None
    numbers = figures(chosen.build(0))
    assert say(numbers) == found
    assert json.loads(json.dumps(numbers, allow_nan=False)) == numbers


@pytest.mark.parametrize(
    ("event", "when", "found"),
    [
        (None, None, "loses 100%, without end"),
        (0, "round 5", "loses 100%; round 5"),
        (0, None, "loses 100%"),
    ],
)
def test_the_rule_of_an_event_ends_with_it(event: int | None, when: str | None, found: str) -> None:
    chosen = choose("loss", 1.0)
    assert chosen is not None
    rule = {"event": event, "figures": figures(chosen.build(0))}
    assert comes_to(rule if when is None else rule | {"when": when}) == found


def test_the_rate_of_a_trace_is_its_mean(tmp_path) -> None:
    (tmp_path / "trace").write_text("2\n3\n5\n9\n10\n")
    chosen = choose("rate", {"kind": "mahimahi", "file": str(tmp_path / "trace")})
    assert chosen is not None
    assert figures(chosen.build()) == {"rate_bps": 5 * 1500 * 8 / 0.01}


@pytest.mark.parametrize(
    ("dist", "parameters"),
    [
        ("uniform", {"low": 5 * MS, "high": 25 * MS}),
        ("normal", {"mean": 3 * MS, "jitter": 5 * MS}),
        ("lognormal", {"mean": 20 * MS, "jitter": 5 * MS}),
        ("exponential", {"mean": 10 * MS}),
        ("pareto", {"minimum": 5 * MS, "shape": 4.0}),
    ],
)
def test_the_mean_of_a_latency_is_that_of_its_quantiles(dist: str, parameters: dict[str, float]) -> None:
    delay = LATENCIES[dist](**parameters)
    assert delay.quantile is not None
    middles = (np.arange(100_000) + 0.5) / 100_000
    assert figures(delay)["mean_ns"] == pytest.approx(np.mean([delay.quantile(u) for u in middles]), rel=2e-3)
