"""The engine's fast ways, one batch for a whole multicast and a path computed at once, change nothing of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import netdfl
from netdfl.core.types import Multicast
from netdfl.links.edge_state import UNKNOWN, PathPlan
from netdfl.links.engine import Route
from netdfl.record.run import Run
from netdfl.record.store import STORE
from netdfl.transport.simulated.transport import SimulatedTransport
from tests.agreeing import agreeing_fleet

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "redrawn": {"topology": {"kind": "random_sym", "neighbors": 4, "redraw_every": 1}},
    "several steps": {"algorithm": {"name": "dfedsam_mgs", "gossip_steps": 3}},
    "push-sum": {"algorithm": {"name": "sgp"}},
    "compressed": {"algorithm": {"name": "choco_sgd"}, "compression": {"kind": "top_k", "fraction": 0.5}},
    "acknowledged": {"delivery": {"kind": "acknowledged"}, "algorithm": {"name": "sgp"}},
    "a pause": {"events": [{"at": "30ms", "for": "90ms", "pause": 2}]},
    "a crash": {"events": [{"at": "70ms", "crash": 3}], "wait": {"deadline": "300ms"}},
    "a return": {"events": [{"at_round": 2, "crash": 3, "restart_after": "1s"}], "wait": {"deadline": "300ms"}},
    "compute": {"world": {"kind": "simulated", "compute": "10ms"}},
    "asynchronous": {"algorithm": {"name": "asyng"}},
}


RARELY = ("several steps", "push-sum", "a crash", "compute", "plain", "asynchronous")
"""Another case has the same kind: steps and times of their own, push-sum with acknowledgments, a crash and a return."""


def marked(cases: Iterable[str]) -> list[Any]:
    """These cases, most of them for `tests.soak.in_full`."""
    return [pytest.param(case, marks=[pytest.mark.soak] * (case in RARELY)) for case in cases]


def play(out: Path, case: str) -> Run:
    return netdfl.run(agreeing_fleet(12, 6, 4) | CASES[case], out=out, page=False).run


class Usual(NamedTuple):
    """A run of a case as it usually is, and the number of messages that were scheduled together."""

    run: Run
    together: int


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Usual]:
    """Plays a case once, whoever asks."""
    over, fired = Route.over, list[int]()

    def counted(edges: Sequence[Any]) -> Route[Any]:
        route = over(edges)
        fired.append(len(edges) if route.delay_ns >= 0 else 0)
        return route

    @cache
    def played(case: str) -> Usual:
        fired.clear()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Route, "over", counted)
            return Usual(play(tmp_path_factory.mktemp("usual") / "run", case), sum(fired))

    return played


@pytest.mark.parametrize("case", marked(CASES))
def test_a_run_is_the_same_where_each_message_is_scheduled_alone(
    case: str, usual: Callable[[str], Usual], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usual(case).together >= 48
    monkeypatch.setattr(Route, "over", lambda edges: Route(edges, UNKNOWN))
    assert_same(usual(case).run, play(tmp_path / "apart", case))


ORDER_OF_NODES = {"a return"}
"""A crash at a round's begin: whether the others hear of it before they send depends on who wakes first at an instant.

A batch is handed over receiver by receiver, messages that leave a stage one by one.
"""


@pytest.mark.parametrize("case", marked(sorted(CASES.keys() - ORDER_OF_NODES)))
def test_a_run_is_the_same_where_each_message_enters_each_stage(
    case: str, usual: Callable[[str], Usual], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = usual(case).run
    monkeypatch.setattr(PathPlan, "computed", lambda path, *, changing: PathPlan.stage_by_stage(path))
    assert_same(computed, play(tmp_path / "entered", case))


def assert_same(one: Run, other: Run) -> None:
    assert one.result["event_log_hash"] == other.result["event_log_hash"]
    for table in ("messages", "metrics", "waits"):
        tables = [(run.path / STORE / f"{table}-fleet.jsonl").read_text() for run in (one, other)]
        rows, others = (sorted(text.splitlines()) for text in tables)
        assert rows == others, table


def test_to_look_at_what_is_under_way_changes_nothing(
    usual: Callable[[str], Usual], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []

    async def looking(self: SimulatedTransport, multicasts: Sequence[Multicast]) -> None:
        await send(self, multicasts)
        if self.node % 5 == 0:
            looked_at.append(len(list(self.fabric.flights())))

    unseen = usual("plain").run
    send = SimulatedTransport.send
    monkeypatch.setattr(SimulatedTransport, "send", looking)
    seen = play(tmp_path / "seen", "plain")
    assert max(looked_at) > 4
    assert min(looked_at) >= 4
    assert seen.result["event_log_hash"] == unseen.result["event_log_hash"]
