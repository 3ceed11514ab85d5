"""The same scenario gives the same hash in another process, and another seed another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_scenario import SMALL, small
from test_world import FAULTY

from netdfl import cli
from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, MessageId, Payload, StepId
from netdfl.record.event_log import EventLog, first_difference
from netdfl.running.determinism import DeterminismCheck, check_determinism
from netdfl.testing.transports import vector_payload

TRAINED = ("task={kind: train, dataset: digits, model: mlp}", "rounds=2", "algorithm={name: dfedavg, lr: 0.1}")


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(TRAINED, marks=pytest.mark.soak, id="trained"),
        pytest.param(("world.compute=measured",), marks=pytest.mark.soak, id="measured"),
        pytest.param(FAULTY, marks=pytest.mark.soak, id="under faults"),
    ],
)
def test_two_processes_agree(sets: tuple[str, ...], tmp_path: Path) -> None:
    found = check_determinism(small(*sets), tmp_path)
    assert found.difference is None
    assert found.hashes[0] == found.hashes[1]


def test_only_the_simulated_world_is_repeatable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not repeatable"):
        check_determinism(small("world.kind=processes"), tmp_path)


def test_two_processes_agree_under_faults_with_measured_times_and_the_command_says_both_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.yaml").write_text(SMALL)
    sets = (*FAULTY, "world.compute=measured")
    arguments = ["run", str(tmp_path / "small.yaml"), "--check-determinism", *(f"--set={each}" for each in sets)]
    monkeypatch.setattr("sys.argv", ["netdfl", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    first, second, verdict = capsys.readouterr().out.splitlines()
    assert (caught.value.code, verdict) == (0, "they are equal")
    assert first.split()[-1] == second.split()[-1]


def test_the_command_names_the_first_event_that_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = DeterminismCheck(("a" * 32, "b" * 32), "entry 7: 'x' in the first run, 'y' in the second")
    monkeypatch.setattr("netdfl.running.determinism.check_determinism", lambda scenario, out: found)
    (tmp_path / "small.yaml").write_text(SMALL)
    arguments = ["run", str(tmp_path / "small.yaml"), "--check-determinism", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("sys.argv", ["netdfl", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert capsys.readouterr().out.splitlines() == [
        f"first run   {'a' * 32}",
        f"second run  {'b' * 32}",
        f"they differ at {found.difference}; both logs are in {tmp_path / 'out'}",
    ]


SETS = """from netdfl.extend import Graph, Topology, static

SITES = list({f"site {k}" for k in range(9)})


def ring(num_nodes, streams, /) -> Topology:
    order = [SITES.index(f"site {k}") for k in range(num_nodes)]
    return static(Graph(num_nodes, [(order[k - 1], order[k]) for k in range(num_nodes)]))
"""


@pytest.mark.soak
def test_code_that_goes_by_the_order_of_a_set_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text(SETS)
    text = "schema: netdfl/1\nname: sets\nnodes: 9\nrounds: 2\ntopology: 'own:ring'\nalgorithm: sgp\n"
    (tmp_path / "s.yaml").write_text(f"{text}task: {{kind: consensus, dim: 2}}\nworld: simulated\n")
    monkeypatch.setattr("sys.argv", ["netdfl", "run", str(tmp_path / "s.yaml"), "--check-determinism"])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 1
    assert "your code goes by the order of a set" in capsys.readouterr().out


class Stopped:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ns = 0

    def now_ns(self) -> int:
        return self.ns


def at(round: int) -> MessageId:
    return MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)


def log_of(entries: list[tuple[int, int, str]], seed: int = 0, value: float = 1.0) -> str:
    """The hash of one message per (time, round, fate) and a metric."""
    clock = Stopped()
    log = EventLog(clock, seed)  # type: ignore[arg-type]
    for at_ns, round, fate in entries:
        clock.ns = at_ns
        log.outcome(Outcome(((0, 1),), at(round), 10, 0, at_ns, Fate.read(fate)), [Payload()])
    log.metrics(0, 0, {"train_loss": value})
    return log.hexdigest()


def test_the_hash_knows_times_fates_and_numbers_but_not_the_order_within_an_instant() -> None:
    entries = [(0, 0, "delivered"), (5, 1, "delivered"), (5, 2, "late")]
    same = log_of([entries[0], entries[2], entries[1]])
    assert log_of(entries) == same
    assert log_of([*entries[:2], (6, 2, "late")]) != same
    assert log_of([*entries[:2], (5, 2, "delivered")]) != same
    assert log_of(entries, value=1.0 + 2**-52) != same


def test_messages_that_are_alike_are_logged_as_others() -> None:
    each, all = (EventLog(Stopped(), 3) for _ in range(2))  # type: ignore[arg-type]
    edges = [(src, dst) for src in range(9) for dst in range(9) if src != dst]
    for round in range(20):
        contents = [vector_payload(np.array([src + round]), {}) for src, _ in edges]
        for edge, of in reversed(list(zip(edges, contents, strict=True))):
            each.outcome(Outcome((edge,), at(round), 10, 0, round, Fate.DELIVERED), [of])
        all.outcome(Outcome(edges, at(round), 10, 0, round, Fate.DELIVERED), contents)
    assert each.hexdigest() == all.hexdigest()


def test_the_hash_knows_contents() -> None:
    def hash_of(values: list[float], w: float) -> str:
        log = EventLog(Stopped(), 0)  # type: ignore[arg-type]
        payload = vector_payload(np.array(values), {"w": w})
        log.outcome(Outcome(((0, 1),), at(0), 10, 0, 1, Fate.DELIVERED), [payload])
        return log.hexdigest()

    assert len({hash_of([1, 2], 1), hash_of([1, 3], 1), hash_of([1, 2], 2)}) == 3


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("1 message a\n2 message b\n")
    other.write_text("1 message a\n3 message b\n")
    assert first_difference(one, other) == "entry 2: '2 message b' in the first run, '3 message b' in the second"
    other.write_text("1 message a\n")
    assert first_difference(one, other) == "entry 2: '2 message b' in the first run, nothing in the second"
    assert first_difference(one, one) is None
