"""A member errs: what it sends is refused, or mixed and recorded; the summary names it, and the others go on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.arrays import to_array, to_tensor
from netdfl.compression.base import Compressor
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Kind, Message, Payload
from netdfl.host.blueprint import Blueprint
from netdfl.host.comparison import NO_COMPARISON, comparison_of
from netdfl.mixing.compressed.gossip import DeepSqueeze
from netdfl.mixing.compressed.literal import BareModel, LiteralQuantized
from netdfl.mixing.gossip import Gossip, GossipThenStep
from netdfl.mixing.payloads import encoded_vector, followed, is_finite, pack_encoded
from netdfl.mixing.push_sum import PushSum
from netdfl.record.observations import OddMessages
from netdfl.record.run import open_run
from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from tests.hostile.erring import numbers, packed

Run = Callable[[str, str], FinishedRun]
X = torch.linspace(-1.0, 1.0, 600)
WHERE = r", first in round 0: 24 messages refused by nodes? [\d, ]+$"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six nodes that agree over twelve rounds, of which node 1 errs."""
    found: dict[tuple[str, str], FinishedRun] = {}

    def go(algorithm: str, error: str) -> FinishedRun:
        if (algorithm, error) not in found:
            scenario = {
                "schema": "netdfl/1",
                "name": "erring",
                "nodes": 6,
                "rounds": 12,
                "world": {"kind": "simulated"},
                "task": {"kind": "consensus", "dim": 50},
                "algorithm": {"name": f"tests.hostile.erring:{algorithm}", "error": error},
                "topology": {"kind": "random_push", "out_neighbors": 2} if algorithm == "sgp" else "ring",
            }
            out = tmp_path_factory.mktemp("erring") / "run"
            found[algorithm, error] = netdfl.run(scenario, out=out, page=False)
        return found[algorithm, error]

    return go


@pytest.mark.parametrize(
    ("algorithm", "error", "sent"),
    [
        ("sgp", "w -1", r"w = -1\.0 in place of w from 0 to 12"),
        ("sgp", "w 1000", r"w = 1000\.0 in place of w from 0 to 12"),
        ("sgp", "w text", "w = 'all of it' in place of w from 0 to 12"),
        ("sgp", "huge", r"numbers up to 1\.62e\+308, whose squares are infinite"),
        ("dpsgd", "too short", r"float64\[49\] in place of vector 'x' as float64\[50\]"),
        ("dpsgd", "whole numbers", r"int32\[50\] in place of vector 'x' as float64\[50\]"),
        ("dpsgd", "other floats", r"float32\[50\] in place of vector 'x' as float64\[50\]"),
        ("dpsgd", "no array", r"nothing in place of vector 'x' as float64\[50\]"),
        ("dpsgd", "huge", r"numbers up to 1\.62e\+308, whose squares are infinite"),
    ],
)
def test_what_can_be_no_message_is_refused_and_its_sender_named(
    run: Run, algorithm: str, error: str, sent: str
) -> None:
    finished = run(algorithm, error)
    ((told),) = [line for line in str(finished).splitlines() if "node 1 sent" in line]
    assert re.fullmatch(f"  node 1 sent {sent}{WHERE}", told)
    assert finished.result["died"] == []
    assert finished.result["consensus_distance"] < run(algorithm, "none").result["consensus_distance"] * 50
    ((each),) = finished.result["refused"]
    assert (each["src"], each["messages"], each["first_round"]) == (1, 24, 0)


@pytest.mark.parametrize(
    ("algorithm", "error", "words"),
    [
        ("sgp", "w 0", r"node 1 sent node \d a model without push-sum weight in round 0"),
        ("sgp", "w 0", r"the nodes hold 0\.2265 of the push-sum weight that they began with"),
        ("sgp", "w 11", r"push-sum weight was made up: the nodes hold \S+ of what they began with"),
        ("sgp", "w 11", r"node 1 sent node \d push-sum weight of 11 in round 0, where none had been above 0\.333"),
        ("sgp", "1e100", r"node 1 sent node \d a model of length \S+e\+10\d in round 0"),
        ("dpsgd", "1e100", r"node 1 sent node 0 a model of length 7\.07e\+100 in round 0, where none .* 7\.59$"),
        ("dpsgd", "to each another", r"node 1 sent node \d a model of length \S+ in round \d+, where none"),
    ],
)
def test_what_may_be_one_is_mixed_and_its_sender_named_first(run: Run, algorithm: str, error: str, words: str) -> None:
    lines = str(run(algorithm, error)).splitlines()
    assert any(re.match(f"  {words}", line) for line in lines), lines
    assert not [line for line in lines if re.match(r"  node [^1] sent", line)]


@pytest.mark.parametrize("algorithm", ["sgp", "dpsgd"])
def test_of_a_fleet_in_which_nobody_errs_nothing_is_said(run: Run, algorithm: str) -> None:
    finished = run(algorithm, "none")
    assert (finished.result["refused"], finished.result["warnings"]) == ([], [])
    assert "push-sum weight" not in str(finished)
    assert "sent node" not in str(finished)


def two_faced(tmp_path: Path, told: str = "dpsgd", error: str = "two faces", **more: Any) -> FinishedRun:
    """Four nodes in threads, each a neighbor of each, of which node 1 errs."""
    scenario = {
        "schema": "netdfl/1",
        "name": "two-faced",
        "nodes": 4,
        "rounds": 9,
        "world": {"kind": "tests.worlds.threads:THREADS"},
        "task": {"kind": "consensus", "dim": 8},
        "algorithm": {"name": f"tests.hostile.erring:{told}", "error": error},
        "topology": {"kind": "full"},
    }
    return netdfl.run({**scenario, **more}, out=tmp_path / "run", page=False)


def test_a_member_that_sends_different_models_is_named_with_who_got_which(tmp_path: Path) -> None:
    finished = two_faced(tmp_path)
    sent = "node 1 sent its neighbors different models in round 0: one to nodes 0, 2, another to node 3"
    assert [(each["kind"], each["text"]) for each in finished.result["warnings"]] == [("equivocation", sent)]
    assert sent in str(finished)
    rows = open_run(finished.path).rows(
        "SELECT node, details->>'digests' FROM events WHERE kind = 'came' ORDER BY node"
    )
    assert [node for node, _ in rows] == [0, 1, 2, 3]
    looked_at = {(round, src) for _, text in rows for round, src, _, _ in json.loads(text)}
    assert looked_at == {(round, src) for round in (0, 2, 4, 6, 8) for src in range(4)}


def test_in_push_sum_too_where_all_neighbors_get_equal_shares(tmp_path: Path) -> None:
    pushed = {"kind": "random_push", "out_neighbors": 2}
    finished = two_faced(tmp_path, "sgp", topology=pushed, rounds=2)
    (warning,) = finished.result["warnings"]
    assert warning["kind"] == "equivocation"
    assert warning["text"].startswith("node 1 sent its neighbors different models in round ")


@pytest.mark.soak
@pytest.mark.parametrize(
    "more",
    [{"algorithm": "sgp", "topology": {"kind": "random_push", "out_neighbors": 2}}, {"algorithm": "deepsqueeze"}],
    ids=["push-sum", "deepsqueeze"],
)
def test_nobody_is_named_in_an_honest_fleet_whose_messages_are_compared(tmp_path: Path, more: Any) -> None:
    finished = two_faced(tmp_path, **{"compression": "qsgd"} if more["algorithm"] == "deepsqueeze" else {}, **more)
    assert len(open_run(finished.path).rows("SELECT node FROM events WHERE kind = 'came'")) == 4
    assert "equivocation" not in {each["kind"] for each in finished.result["warnings"]}


def test_shares_are_compared_where_weights_are_equal_by_the_graph() -> None:
    def compared(topology: Any, **more: Any) -> bool:
        base = {"schema": "netdfl/1", "name": "few", "task": {"kind": "consensus"}, "nodes": 5, "rounds": 3}
        told = loads(json.dumps(base | {"algorithm": "sgp", "topology": topology} | more))
        return Blueprint.of(told).compared != NO_COMPARISON

    assert compared({"kind": "random_push", "out_neighbors": 2})
    assert compared({"kind": "ring", "weights": "column"})
    assert not compared({"kind": "ring"}), "weights of its links may differ"
    assert not compared({"kind": "random_push", "out_neighbors": 2}, compression="qsgd"), "references by edge"


@pytest.mark.parametrize(
    ("algorithm", "error", "links"),
    [
        ("dpsgd", "none", {}),
        ("choco_sgd", "two faces", {}),
        ("dpsgd", "two faces", {"default": {"corrupt": {"probability": 1e-9, "mode": "deliver"}}}),
    ],
    ids=["honest", "by-edge", "damaged"],
)
def test_nobody_is_named_where_models_are_the_same_or_may_differ(
    tmp_path: Path, algorithm: str, error: str, links: Any
) -> None:
    finished = two_faced(tmp_path, algorithm, error, links=links, rounds=2)
    assert "equivocation" not in {each["kind"] for each in finished.result["warnings"]}


@pytest.mark.parametrize(
    ("src", "who"), [(1, "node 1 sent what is malformed (?[2J"), (None, "1 call of strangers refused")]
)
def test_what_a_record_says_can_not_write_over_a_terminal(src: int | None, who: str) -> None:
    told = OddMessages(src, "malformed", 1, 0, [0], "\x1b[2J\n" + "x" * 5000).sentence("refused")
    assert told.startswith(who)
    assert told.isprintable()
    assert "?[2J?xxx" in told
    assert len(told) < 600


class OfItsOwn(Gossip):
    """A method that may send each neighbor something else."""

    def outgoing(self, *told: Any) -> Any:
        """Send as the method does that it is made of."""
        return super().outgoing(*told)


class CodedInOwnWay(DeepSqueeze):
    """A compressed method that may send each neighbor something else."""

    def outgoing(self, *told: Any) -> Any:
        """Send as the method does that it is made of."""
        return super().outgoing(*told)


class SharesOfItsOwn(PushSum):
    """A push-sum that may send each neighbor something else."""

    def outgoing(self, *told: Any) -> Any:
        """Send as the method does that it is made of."""
        return super().outgoing(*told)


def test_a_method_that_has_messages_of_its_own_is_not_taken_to_send_all_the_same() -> None:
    made = [Gossip(), GossipThenStep(), OfItsOwn(), ALGORITHMS["choco_sgd"].build(Exchange()).mixing]
    assert [getattr(mixing, "same_to_all", False) for mixing in made] == [True, True, False, False]
    coded = [
        kind(compressor=COMPRESSORS["qsgd"]()) for kind in (DeepSqueeze, LiteralQuantized, BareModel, CodedInOwnWay)
    ]
    assert [mixing.same_to_all for mixing in coded] == [True, True, True, False]
    assert [kind().one_share for kind in (PushSum, SharesOfItsOwn)] == [True, False]


def test_of_a_large_fleet_some_senders_are_compared_in_each_round() -> None:
    few = {"schema": "netdfl/1", "name": "few", "task": {"kind": "consensus"}, "algorithm": "dpsgd", "topology": "ring"}
    for nodes, rounds, expected in ((64, 8, (range(8), 1)), (65, 9, (range(0, 9, 2), 2)), (3, 1, (range(1), 1))):
        found = comparison_of(loads(json.dumps(few | {"nodes": nodes, "rounds": rounds})), same_to_all=True)
        assert found == (frozenset(expected[0]), expected[1])
    assert comparison_of(loads(json.dumps(few | {"nodes": 3, "rounds": 9})), same_to_all=False) == NO_COMPARISON


def said(compressor: Compressor, x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> Message:
    """What node 1 sends node 0 of `x`, with its floats changed."""
    payload = pack_encoded(compressor.compress(x, np.random.default_rng(0)))
    changed = {
        name: to_array(change(to_tensor(array))) if "float" in array.dtype else array
        for name, array in payload.arrays.items()
    }
    return Message(1, 0, Kind.DATA, 0, 3, 0, 0, Payload(changed, payload.meta))


@pytest.mark.parametrize("name", COMPRESSORS)
@pytest.mark.parametrize(
    ("dtype", "value"), [("float64", 1e300), ("float64", 1e100), ("float32", 3e38), ("float32", 1e19)]
)
def test_a_code_of_numbers_that_are_none_in_the_models_type_is_refused(name: str, dtype: str, value: float) -> None:
    compressor = COMPRESSORS[name]()

    def fill(x: torch.Tensor) -> torch.Tensor:
        return torch.full(x.shape, value, dtype=getattr(torch, dtype)).to(
            getattr(torch, dtype) if x.itemsize > 2 else x.dtype
        )

    for read in (encoded_vector, followed):
        assert bool(read(said(compressor, X, torch.clone), compressor, X).isfinite().all())
        with pytest.raises(MalformedMessage, match=r"message 1->0 of round 3: .*(finite|expected)"):
            read(said(compressor, X, fill), compressor, X)


def test_a_code_in_another_type_is_taken_where_its_numbers_fit() -> None:
    compressor = COMPRESSORS["qsgd"]()
    wide = encoded_vector(said(compressor, X, torch.Tensor.double), compressor, X)
    assert wide.dtype == X.dtype
    assert torch.allclose(wide, encoded_vector(said(compressor, X, torch.clone), compressor, X))


def test_a_model_of_three_e_38_can_not_be_computed_with() -> None:
    for dtype, most in (("float32", 1.8e19), ("float64", 1.3e154)):
        for x, fits in ((most, True), (most * 1.1, False)):
            assert is_finite(Payload({"x": packed(np.array([x], dtype))})) == fits
    assert numbers(packed(np.arange(3.0))).tolist() == [0.0, 1.0, 2.0]
