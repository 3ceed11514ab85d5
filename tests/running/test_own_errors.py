"""Whatever a user's own code raises in round 3 at node 2, and what of its is no use, is told with its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import netdfl
from netdfl.core import whose
from netdfl.core.errors import InputError, OwnCodeError, problems_in
from netdfl.running.judged import FinishedRun

OWN = """
import sys
from dataclasses import dataclass

from netdfl.extend import Algorithm, Memoryless, MixResult, NoState, RowMixing, Update, gossip, pack, to_all
from netdfl.extend import weighted_mean


class Other(BaseException):
    pass


ERRORS = {
    "group": ExceptionGroup("both", [ValueError("one"), ValueError("two")]),
    "stop": StopIteration("empty"),
    "generator": GeneratorExit(),
    "other": Other("no Exception"),
}


def now(view):
    return view.round == 3 and view.node == 2


class Local(Memoryless):
    def __init__(self, how):
        self.how = how

    def train(self, state, y, received, weight, data, view):
        if now(view) and self.how == "exit":
            sys.exit(3)
        if now(view) and self.how in ERRORS:
            raise ERRORS[self.how]
        return state, Update(y, y.clone())


@dataclass(frozen=True)
class Mixing(RowMixing):
    how: str

    def init(self, x, view):
        return NoState()

    def num_steps(self, round, view):
        return {"none": None, "half": 0.5, "below": -1}.get(self.how, 1) if now(view) else 1

    def weight(self, state):
        return 1.0

    def outgoing(self, state, update, step, view):
        big = {"big": 2**70} if now(view) and self.how == "meta" else None
        return state, to_all(view, pack(update.x, meta=big))

    def mix(self, state, update, inbox, step, view):
        if now(view) and self.how == "stop_mix":
            raise StopIteration
        return MixResult(state, update._replace(x=weighted_mean(view, inbox, update.x)))


def own(exchange, /, *, how: str) -> Algorithm:
    return gossip(exchange, Local(how), mixing=Mixing(how))
"""
TRAINS = "raise ERRORS[self.how]"
STEPS = "def num_steps"
TOLD: dict[str, tuple[str, str]] = {
    "group": ("your own code raised ExceptionGroup: both (2 sub-exceptions)", TRAINS),
    "stop": ("your own code raised StopIteration: empty", TRAINS),
    "generator": ("your own code raised GeneratorExit", TRAINS),
    "other": ("your own code raised Other: no Exception", TRAINS),
    "exit": ("your own code raised SystemExit: 3", "sys.exit(3)"),
    "stop_mix": ("your own code raised StopIteration (", "raise StopIteration"),
    "none": ("Mixing returned None from num_steps: return an int of 0 or more", STEPS),
    "half": ("Mixing returned 0.5 from num_steps: return an int of 0 or more", STEPS),
    "below": ("Mixing returned -1 from num_steps: return an int of 0 or more", STEPS),
    "meta": ("Mixing returned a payload that can't be sent from outgoing: metadata holds", "def outgoing"),
}


def ran(folder: Path, how: str, world: str) -> FinishedRun:
    (folder / "own.py").write_text(OWN)
    scenario = {"schema": "netdfl/1", "name": "raises", "nodes": 4, "rounds": 5, "world": world, "topology": "ring"}
    parts = {"task": {"kind": "consensus", "dim": 3}, "algorithm": {"name": "own:own", "how": how}}
    (folder / "s.yaml").write_text(json.dumps(scenario | parts))
    return netdfl.run(folder / "s.yaml", out=folder / "run", page=False)


def check_told(done: FinishedRun, folder: Path, how: str) -> None:
    said, line = TOLD[how]
    at = next(number for number, text in enumerate(OWN.splitlines(), 1) if line in text)
    (reason,) = done.result["reasons"]
    assert reason.startswith(f"node 2: round 3: {said}")
    assert reason.endswith(f"({folder / 'own.py'}:{at})")
    assert done.exit_code == 4


@pytest.mark.parametrize("how", TOLD)
def test_an_error_in_a_later_round_of_a_simulated_run(how: str, tmp_path: Path) -> None:
    check_told(ran(tmp_path, how, "simulated"), tmp_path, how)


@pytest.mark.parametrize("how", ["exit", *(pytest.param(how, marks=pytest.mark.soak) for how in TOLD if how != "exit")])
def test_an_error_in_a_later_round_of_processes(how: str, tmp_path: Path) -> None:
    check_told(ran(tmp_path, how, "processes"), tmp_path, how)


PARTS = """
from netdfl.extend import Compressor, EncodedVector, Graph, Topology, to_array, to_tensor


class Coder(Compressor):
    calls = 0

    def variance(self, dim):
        return 0.5

    def compress(self, x, rng):
        Coder.calls += 1
        if Coder.calls > 30:
            raise ValueError("late")
        return EncodedVector(len(x), {"x": to_array(x.clone())})

    def decompress(self, encoded):
        return to_tensor(encoded.arrays["x"]).clone()


def coder():
    return Coder()


def graph(num_nodes, streams, /, *, drew: str, since: int = 4) -> Topology:
    def draw(block):
        num = num_nodes - (drew == "small" and block >= since)
        if drew == "none" and block >= since:
            return None
        return Graph.undirected(num, [(node, (node + 1) % num) for node in range(num)])

    return Topology(num_nodes, draw, directed=False, redraw_every=1)


def time(streams, /, *, late: int | float | None):
    def take(node, round):
        return late if round == 3 and node == 2 else 5

    return take
"""


def part(key: str, given: dict[str, Any], folder: Path) -> Path:
    (folder / "own.py").write_text(PARTS)
    scenario: dict[str, Any] = {"schema": "netdfl/1", "name": "parts", "nodes": 4, "rounds": 5, "topology": "ring"}
    scenario |= {"algorithm": {"name": "dfedavg", "lr": 0.1}, "task": {"kind": "quadratic", "dim": 3}}
    scenario |= {"world": {"kind": "simulated"}}
    (scenario["world"] if key == "compute" else scenario)[key] = given
    (folder / "s.yaml").write_text(json.dumps(scenario))
    return folder / "s.yaml"


@pytest.mark.parametrize(
    ("key", "given", "said", "line"),
    [
        ("compression", {"kind": "own:coder"}, "your own code raised ValueError: late", 'ValueError("late")'),
        ("topology", {"drew": "small"}, "the topology drew a graph of 3 nodes for 4 as block 4", "def draw"),
        ("topology", {"drew": "none"}, "the topology drew None as block 4", "def draw"),
        *(
            ("compute", {"late": late}, f"the compute time 'own:time' gave {late} as nanoseconds of node 2", "def time")
            for late in (-5, None, 0.5)
        ),
    ],
)
def test_a_part_of_no_use_in_a_later_round(
    key: str, given: dict[str, Any], said: str, line: str, tmp_path: Path
) -> None:
    name = {"compression": "coder", "topology": "graph", "compute": "time"}[key]
    done = netdfl.run(part(key, {"kind": f"own:{name}", **given}, tmp_path), out=tmp_path / "run", page=False)
    at = next(number for number, text in enumerate(PARTS.splitlines(), 1) if line in text)
    (reason,) = done.result["reasons"]
    assert said in reason
    assert ("round 4: " if key == "topology" else "round 3: ") in reason or key == "compression"
    assert reason.endswith(f"({tmp_path / 'own.py'}:{at})")
    assert done.exit_code == 4


@pytest.mark.parametrize(("drew", "said"), [("small", "a graph of 3 nodes for 4"), ("none", "None")])
def test_a_graph_that_is_none_of_the_nodes_is_refused_at_once(drew: str, said: str, tmp_path: Path) -> None:
    file = part("topology", {"kind": "own:graph", "drew": drew, "since": 0}, tmp_path)
    with pytest.raises(InputError, match=rf"the topology drew {said} as block 0 \(.*own.py:26\)") as caught:
        netdfl.load(file)
    assert len(problems_in(caught.value)) == 1


def raised_by(name: str, error: BaseException) -> BaseException:
    """Return `error` as raised in a file of this name: netdfl's, in which it is raised by a user's line."""
    names: dict[str, Any] = {}
    exec(compile("def call(do): do()", name, "exec"), names)

    def slips() -> None:
        raise error

    try:
        names["call"](slips)
    except BaseException as found:
        return found
    raise AssertionError


def test_an_interrupt_is_nobodys_mistake() -> None:
    of_netdfl = str(Path(netdfl.__file__).parent / "host" / "node.py")
    told = whose.theirs(raised_by(of_netdfl, SystemExit(1)), "round 3: ")
    assert isinstance(told, OwnCodeError)
    assert str(told).startswith("round 3: your own code raised SystemExit: 1 (")
    assert whose.theirs(told, "round 4: ") is told
    interrupt = raised_by(of_netdfl, KeyboardInterrupt())
    assert whose.theirs(interrupt) is None
    assert whose.carried(interrupt) is interrupt
    with pytest.raises(KeyboardInterrupt), whose.telling_theirs(str):
        raise interrupt
