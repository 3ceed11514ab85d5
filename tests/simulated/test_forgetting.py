"""Where a graph is redrawn, links that nobody needs any more are forgotten, and nothing can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.record.run import Run
from netdfl.record.store import STORE
from netdfl.transport.simulated import ends
from netdfl.transport.simulated.ends import FabricEdge
from tests.agreeing import agreeing_fleet

REDRAWN = {"topology": {"kind": "random_sym", "neighbors": 4, "redraw_every": 1}}
VARYING = {"dist": "lognormal", "mean": "20ms", "jitter": "15ms"}
RULES: dict[str, dict[str, Any]] = {
    "plain": {"latency": "20ms"},
    "rules": {"latency": VARYING, "loss": "5%", "rate": "1Mbit"},
    "unordered": {"latency": VARYING | {"order": "free"}, "reorder": "20%"},
    "bucket": {"latency": "20ms", "rate": {"rate": "100kbit", "burst": "2kB", "queue": "4kB"}},
    "bursts": {"latency": "20ms", "loss": {"model": "gilbert_elliott", "p": "5%", "r": "50%"}},
}


def play(out: Path, rules: str) -> Run:
    scenario = agreeing_fleet(12, 12, 4) | REDRAWN | {"links": {"default": RULES[rules]}, "wait": {"deadline": "300ms"}}
    return netdfl.run(scenario, out=out, page=False).run


OFTEN = {"rules", "bursts"}


@pytest.mark.parametrize(
    "rules", [pytest.param(rules, marks=[] if rules in OFTEN else [pytest.mark.soak]) for rules in RULES]
)
def test_a_run_is_the_same_whether_links_are_forgotten(
    rules: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[FabricEdge] = []

    def counted(self: FabricEdge, *args: Any) -> None:
        made.append(self)
        make(self, *args)

    make = FabricEdge.__init__
    monkeypatch.setattr(FabricEdge, "__init__", counted)
    monkeypatch.setattr(ends, "FEW_EDGES", 100)
    kept = play(tmp_path / "kept", rules)
    edges = len(made)
    made.clear()
    monkeypatch.setattr(ends, "FEW_EDGES", 1)
    anew = play(tmp_path / "anew", rules)
    assert (len(made) > edges) == (rules != "bursts")  # such a link remembers its last message for ever
    assert anew.result["event_log_hash"] == kept.result["event_log_hash"]
    for table in ("messages", "metrics", "waits"):
        rows = [(run.path / STORE / f"{table}-fleet.jsonl").read_text() for run in (kept, anew)]
        assert rows[0] == rows[1], table
