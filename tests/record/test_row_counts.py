"""What a run writes grows with what happens in it, and in a few large writes: counted, in fleets of two sizes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import netdfl
from netdfl.core.fates import Fate
from netdfl.record.sampling import Sampling
from netdfl.record.store import FLUSH_ROWS, StoreWriter
from tests.agreeing import agreeing_fleet
from tests.record.test_sampling import outcome

NEIGHBORS, ROUNDS = 4, 6
METRICS_A_ROUND = 7
"""Figures that a node records of a round."""


def scenario(nodes: int, messages: str) -> dict[str, object]:
    agreeing = agreeing_fleet(nodes, ROUNDS, NEIGHBORS, redraw_every=1)
    return agreeing | {"record": {"messages": messages}, "evaluation": {"local": "none"}}


RARELY = pytest.mark.soak


@pytest.mark.parametrize(
    "messages", [pytest.param("all", marks=RARELY), "every 4th", pytest.param("per_link", marks=RARELY)]
)
def test_rows_by_message_and_round_do_not_depend_on_the_size(messages: str, tmp_path: Path) -> None:
    for nodes in (12, 36):
        run = netdfl.run(scenario(nodes, messages), out=tmp_path / str(nodes), page=False).run
        sent, rounds = nodes * NEIGHBORS * ROUNDS, nodes * ROUNDS
        assert run.result["messages"]["sent"] == run.result["messages"]["delivered"] == sent
        rows = {table: run.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("messages", "metrics", "waits")}
        share = {"all": 1.0, "every 4th": 0.25, "per_link": 0.0}[messages]
        assert rows["messages"] == pytest.approx(share * sent, rel=0.3)
        assert rows["waits"] <= rounds
        own = run.rows("SELECT count(*) FROM metrics WHERE node IS NOT NULL")[0][0]
        assert own <= METRICS_A_ROUND * rounds
        assert run.rows("SELECT count(*) FROM events")[0][0] <= 5


@pytest.mark.parametrize("every", [1, 3])
def test_rows_that_are_alike_are_written_as_others(every: int, tmp_path: Path) -> None:
    edges = [(src, dst) for src in range(20) for dst in (1, 300)]
    with StoreWriter(tmp_path, "each", Sampling(every)) as each, StoreWriter(tmp_path, "all", Sampling(every)) as all:
        for round in range(40):
            all.outcome(outcome(0, 1, round)._replace(edges=edges))
            all.outcome(outcome(7, 8, round, Fate.read("dropped:loss")))
            for src, dst in edges:
                each.outcome(outcome(src, dst, round))
            each.outcome(outcome(7, 8, round, Fate.read("dropped:loss")))
    written = [(tmp_path / "store" / f"messages-{name}.jsonl").read_text() for name in ("each", "all")]
    assert written[0] == written[1]
    assert len(written[0].splitlines()) > 40


@pytest.mark.parametrize("every", [1, 10, 0])
def test_rows_are_written_many_at_a_time(every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []

    def counted(fd: int, data: bytes) -> int:
        writes.append(len(data))
        return real(fd, data)

    real = os.write
    monkeypatch.setattr(os, "write", counted)
    with StoreWriter(tmp_path, "fleet", Sampling(every)) as store:
        for round in range(2000):
            store.outcome(outcome(0, 1, round)._replace(edges=[(src, src + 1) for src in range(10)]))
    rows = sum(len(file.read_bytes().splitlines()) for file in (tmp_path / "store").iterdir())
    assert rows >= 10
    assert len(writes) <= 3 + rows / FLUSH_ROWS
