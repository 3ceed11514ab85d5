"""Who returns without its state asks those to whom links work both ways; who they are is found once for a fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from netdfl.core.types import NodeId
from netdfl.host import blueprint as module
from netdfl.host.blueprint import Blueprint
from netdfl.scenario.load import loads
from tests.agreeing import agreeing

RETURNS = """
wait: {deadline: 50ms}
links: {default: {latency: 5ms}}
events:
  - {crash: 1, at: 12ms, restart_after: 20ms, state: lost}
  - {crash: 4, at: 14ms, restart_after: 20ms, state: lost}
  - {crash: 6, at: 16ms, restart_after: 20ms, state: lost}
"""


def returning(topology: str) -> str:
    return agreeing("returning", 8, 6, RETURNS, compute="10ms", topology=topology)


def test_the_links_of_all_rounds_are_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*args: object) -> object:
        calls.append(args)
        return real(*args)  # type: ignore[arg-type]

    real = module.used_links
    monkeypatch.setattr(module, "used_links", counted)
    finished = netdfl.run(loads(returning("{kind: random_sym, neighbors: 2}")), out=tmp_path / "run", page=False)
    assert len(finished.result["restarts"]) == 3
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("topology", "node", "peers"),
    [
        ("ring", 6, (7, 5)),
        ("{kind: random_push, out_neighbors: 2}", 6, (7, 0, 1, 2, 3, 4, 5)),
        ("full", 2, (3, 4, 5, 6, 7, 0, 1)),
    ],
)
def test_the_next_one_is_asked_first(topology: str, node: NodeId, peers: tuple[NodeId, ...]) -> None:
    algorithm = "sgp" if "push" in topology else "dpsgd"
    blueprint = Blueprint.of(loads(returning(topology), [f"algorithm={algorithm}"]))
    assert blueprint.joining(node, 2, 0).peers == peers
