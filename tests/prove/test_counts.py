"""How many schedules there are: by the closed form where faults change nothing, else by a naive enumeration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import comb
from typing import Any

import pytest

from netdfl.prove.bound import read_bound
from netdfl.prove.player import Play
from netdfl.prove.proof import REDUCTIONS, ProofAnswer, ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load
from tests.prove.naive import FLEET, PAIR, count

ACKNOWLEDGED = {"delivery": {"kind": "acknowledged", "timeout": "12ms", "attempts": 2}, "wait": {"deadline": "none"}}
LATE = {"links": {"default": {"latency": "5ms"}, "0->1": {"latency": "26ms"}}}
"""What node 0 says comes to node 1 after its deadline, always."""


def proof(plain: dict[str, Any], faults: str, names: tuple[str, ...] = (), **more: Any) -> ScenarioProof:
    """A proof about `plain`."""
    scenario = load(dict(plain))
    return ScenarioProof(scenario, read_bound(faults), choose_properties(scenario, names), **more)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_without_effect_on_what_is_sent_there_are_the_sums_of_the_binomials(most: int) -> None:
    """Plain delivery, a fixed deadline, losses alone: 12 messages in two rounds of a ring of three."""
    answer = proof(FLEET | {"rounds": 2}, f"loss: {most}", without=REDUCTIONS).run()
    assert answer.survives
    assert answer.progress.schedules == answer.progress.played == sum(comb(12, k) for k in range(most + 1))


@pytest.mark.parametrize(
    ("plain", "faults"),
    [
        (PAIR | ACKNOWLEDGED | {"rounds": 1}, {"loss": 2}),
        (PAIR | LATE | {"rounds": 1}, {"loss": 1, "crash": 1}),
        pytest.param(PAIR | ACKNOWLEDGED | {"rounds": 1}, {"loss": 1, "crash": 1}, marks=pytest.mark.soak),
    ],
    ids=["sent again", "crashes", "sent again after a crash"],
)
def test_elsewhere_there_are_as_many_as_a_naive_enumeration_finds(
    plain: dict[str, Any], faults: dict[str, int]
) -> None:
    """With reductions, too: the schedules that they answer count."""
    number, bound = count(plain, faults), ", ".join(f"{kind}: {most}" for kind, most in faults.items())
    whole, fewer = (proof(plain, bound, ("stall",), without=without).run() for without in (REDUCTIONS, ()))
    assert whole.survives
    assert fewer.survives
    assert whole.progress.schedules == whole.progress.played - whole.progress.refused == number
    assert fewer.progress.schedules == number
    assert fewer.progress.played < number


def outcome(play: Play, exchange: Mapping[int, int] | None = None) -> object:
    """How a play ends: who is left, who is away, the weight and the fleet's figures; or who is left, exchanged."""
    if exchange is not None:
        return frozenset(exchange[node] for node in play.end.left), frozenset(exchange[node] for node in play.end.away)
    figures = sorted((m.name, m.value) for m in play.run.rows.measured if m.node is None)
    return play.end.left, play.end.away, play.end.weight, tuple(figures)


def plays_of(proven: ScenarioProof) -> tuple[ProofAnswer, list[Play]]:
    """The answer of a proof, and all of its plays."""
    plays: list[Play] = []
    proven.enumeration.prefix_player = replace(proven.enumeration.prefix_player, seen=plays.append)
    return proven.run(), plays


@pytest.mark.parametrize(
    ("plain", "faults", "uses"),
    [
        pytest.param(FLEET | LATE | {"rounds": 2}, "loss: 2", "void", marks=pytest.mark.soak),
        pytest.param(PAIR | LATE | {"rounds": 1}, "loss: 1, crash: 1", "void", marks=pytest.mark.soak),
        (PAIR | {"algorithm": "sgp", "rounds": 1} | LATE, "loss: 1, crash: 1", "void"),
        (FLEET | {"wait": {"for": {"quorum": 1}}, "rounds": 2}, "loss: 2", "symmetry"),
        pytest.param(PAIR | {"rounds": 1}, "loss: 1, crash: 1", "symmetry", marks=pytest.mark.soak),
        (FLEET | {"wait": {"deadline": "none"}}, "loss: 2", "symmetry"),
    ],
    ids=["late", "crashes", "push-sum", "a quorum", "crashes of two", "a stall"],
)
def test_a_reduction_changes_neither_the_answer_nor_the_outcomes(plain: dict[str, Any], faults: str, uses: str) -> None:
    """Where one breaks a property, the smallest has as many faults; else all outcomes are there."""
    symmetric = uses == "symmetry"
    names, others = ("stall", "finish") if symmetric else ("stall",), [name for name in REDUCTIONS if name != uses]
    whole, all_of = plays_of(proof(plain, faults, names, without=REDUCTIONS))
    fewer = proof(plain, faults, names, without=others)
    answer, some = plays_of(fewer)
    assert answer.survives == whole.survives
    assert len(answer.faults) == len(whole.faults)
    if not whole.survives:
        assert plain["wait"] == {"deadline": "none"}
        return
    assert answer.progress.schedules == whole.progress.schedules == len(all_of)
    assert len(some) < (0.7 if symmetric else 1) * len(all_of)
    exchanges = fewer.enumeration.symmetries.exchanges if symmetric else [None]
    assert len(exchanges) > 1 or not symmetric
    same = {node: node for node in range(plain["nodes"])} if symmetric else None
    assert {outcome(play, exchange) for play in some for exchange in exchanges} == {outcome(p, same) for p in all_of}
