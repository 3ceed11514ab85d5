"""How often a fleet is checked for stalls as its nodes end: the cost is of the whole fleet, each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.diagnosis.assemble import assemble
from netdfl.running.run import run
from netdfl.scenario.load import loads
from tests.agreeing import agreeing


def test_nodes_that_end_one_by_one_are_not_each_followed_by_a_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def counted(at_ns: int, *rest: Any, **more: Any) -> Any:
        seen.append(at_ns)
        return assemble(at_ns, *rest, **more)

    monkeypatch.setattr("netdfl.supervisor.stalls.assemble", counted)
    text = agreeing("ends", 40, 3, "wait: {deadline: none}", compute="{kind: lognormal, mean: 200min, jitter: 5min}")
    done = run(loads(text), out=tmp_path, page=False)
    rows = done.run.rows("SELECT DISTINCT max(at_s) FROM metrics WHERE name = 'round_s' AND node >= 0 GROUP BY node")
    ends = [at_s for (at_s,) in rows]
    assert len(ends) > 10, "they end one by one"
    assert 1 <= sum(at_ns >= min(ends) * 1e9 for at_ns in seen) <= len(ends) / 2
