"""A run that trains: its set's gain is that of a fresh run, and what does not change is not trained again."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from netdfl.algorithms.base import LocalRound, NodeState
from netdfl.blame.command import blame
from netdfl.blame.run import BlameLimits, open_blame
from netdfl.blame.store import LocalRoundStore, key_of
from netdfl.core.types import View
from netdfl.explore.execute import Executor
from netdfl.running.run import run
from netdfl.scenario.load import load
from netdfl.training.toy import Quadratic

ROOT = Path(__file__).resolve().parents[2]
PARTED = "{at: 20ms, for: 200ms, partition: [[0..3], [4..7]]}"
CRASHED = "{at_round: 1, crash: 4, restart_after: 5s, state: kept}"
SHORT = ["nodes=8", "rounds=2", f"events=[{PARTED}, {CRASHED}]"]


@pytest.mark.soak
def test_the_gain_of_the_set_is_to_the_nanosecond_that_of_one_fresh_run_without_it(tmp_path: Path) -> None:
    run(load(ROOT / "scenarios" / "under_loss.yaml", SHORT, on="simulated"), out=tmp_path / "run", page=False)
    asked = open_blame(tmp_path / "run", limits=BlameLimits(candidates=2, set_runs=4))
    printed = StringIO()
    assert blame(asked, tmp_path, Console(file=printed, width=300)) == 0
    fresh = Executor().run(load(tmp_path / "without.yaml"))
    found = asked.blame
    assert found.without is not None
    assert found.gain(found.without) == found.base.end_ns - fresh.length_ns
    assert found.without.log_hash == fresh.event_log_hash
    assert found.gap is not None
    assert 10 * (found.base.end_ns - fresh.length_ns) >= 9 * found.gap > 0
    store = asked.player.executor.store
    assert 0 < store.recalled
    for_the_page = 1 + 2  # the run itself and both candidates, with their records
    assert store.trained + store.recalled == 2 * 8 * (asked.player.played + 1 + for_the_page)
    assert (
        f"{store.recalled} of {store.trained + store.recalled} local rounds were not trained again"
        in printed.getvalue()
    )


STATE = NodeState(1, torch.tensor([1.0, 2.0]), None, (3, "a"), {"w": torch.ones(2)}, ())
VIEW = View(0, 1, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})


def local_round(state: NodeState = STATE, view: View = VIEW, solver: object = None) -> tuple[LocalRound, Any]:
    alg: Any = SimpleNamespace(local=solver or Quadratic.__new__(Quadratic), start=Quadratic.__new__(Quadratic))
    return LocalRound(state, alg, Any, view), Quadratic.__new__(Quadratic)  # type: ignore[arg-type]


CHANGES = {
    "x": STATE._replace(x=torch.tensor([1.0, 3.0])),
    "type": STATE._replace(x=torch.tensor([1.0, 2.0], dtype=torch.float64)),
    "shape": STATE._replace(x=torch.tensor([[1.0, 2.0]])),
    "round": STATE._replace(round=2),
    "local": STATE._replace(local=(3, "b")),
    "structure": STATE._replace(local=(3, ("a",))),
    "a name": STATE._replace(mixing={"v": torch.ones(2)}),
    "no z": STATE._replace(z=torch.zeros(2)),
    "-0": STATE._replace(x=torch.tensor([1.0, 2.0]), mixing={"w": torch.tensor([1.0, -1.0])}),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_part_of_the_state_is_in_the_key(name: str) -> None:
    assert key_of(*local_round()) == key_of(*local_round(STATE._replace(x=STATE.x.clone())))
    assert key_of(*local_round(CHANGES[name])) != key_of(*local_round())


@pytest.mark.parametrize("changed", [{"node": 1}, {"round": 2}, {"in_weights": {1: 0.25}}, {"active": False}])
def test_the_node_and_its_view_are_in_the_key(changed: dict[str, Any]) -> None:
    assert key_of(*local_round(view=VIEW._replace(**changed))) != key_of(*local_round())


def test_what_may_depend_on_more_has_no_key() -> None:
    class OfMyOwn:
        pass

    assert key_of(*local_round()) is not None
    assert key_of(*local_round(solver=OfMyOwn())) is None
    assert key_of(*local_round(STATE._replace(local=OfMyOwn()))) is None


def test_a_store_without_room_trains_every_time(tmp_path: Path) -> None:
    plain = {"nodes": 2, "rounds": 1, "topology": "full", "task": {"dataset": "digits", "model": "mlp"}}
    plain |= {
        "schema": "netdfl/1",
        "name": "two",
        "algorithm": "dpsgd",
        "world": {"kind": "simulated", "compute": "9ms"},
    }
    run(load(plain), out=tmp_path / "run", page=False)
    for most, stored in ((0, False), (10**9, True)):
        asked = open_blame(tmp_path / "run")
        store = asked.player.executor.store = LocalRoundStore(most)
        hashes = {asked.player.executor.run(asked.player.scenario).event_log_hash for _ in range(2)}
        assert hashes == {asked.blame.base.log_hash}
        assert (store.recalled, store.trained) == ((2, 2) if stored else (0, 4))
        assert (store.nbytes > 0) == stored
