"""An algorithm of one's own gets every check that netdfl's get: they go by the traits of its `Entry`, by no name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load

SCENARIO = """schema: netdfl/1
name: own
nodes: 8
rounds: 8
task: {kind: quadratic}
"""
OWN = """
from netdfl.algorithms.base import Algorithm, Entry
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.catalog import ALGORITHMS

def same(
    exchange: Exchange, /, *, form: str = "", weighting: str = "", augment: tuple[str, ...] = ()
) -> Algorithm:
    return ALGORITHMS["NAME"].build(exchange)

algorithm = Entry(same, ALGORITHMS["NAME"].family, ALGORITHMS["NAME"].needs, "my own", TRAITS)
"""
SERVER, LOST = "topology=star", "events=[{at_round: 2, crash: 1, restart_after: 1s, state: lost}]"
STALE, LAST = "wait={for: none, stale: 2}", "wait={deadline: 50ms, on_missing: last}"
UNDO = ("wait={deadline: 50ms, on_missing: undo}", "delivery=acknowledged")
QSGD, CATCH_UP = "compression=qsgd", "events=[{at_round: 2, crash: 1, restart_after: 1s, rejoin: catch_up}]"
EF21, SQUEEZE = "compression={kind: qsgd, scheme: ef21}", "compression={kind: qsgd, scheme: deepsqueeze}"
LITERAL = 'scheme="choco", literal=("form", "literal")'
GRAPH, SCHEME = "topology=ring", 'scheme="choco"'
UNDONE, SCALED = "undo is for whole vectors, and here NAME sends something else", "choco can't scale up what came"
CASES = {
    "corrections begun anew": (
        "scaffold",
        "remembers=True",
        [SERVER, LOST],
        "a client that loses its state begins NAME",
    ),
    "no change": (
        "fedavg",
        "",
        [SERVER, "compression={kind: qsgd, extras: compressed}"],
        "NAME reports no change that",
    ),
    "ef21": ("fedavg", "", [SERVER, EF21, "algorithm.weighting=samples"], "ef21 averages what all clients have said"),
    "another scheme": ("choco_sgd", SCHEME, [GRAPH, SQUEEZE], "NAME is choco by its definition"),
    "a scheme undone": ("choco_sgd", SCHEME, [GRAPH, *UNDO], UNDONE),
    "a scheme's stale": ("choco_sgd", SCHEME, [GRAPH, STALE], "stale is for whole vectors, and NAME sends something"),
    "references scaled up": ("choco_sgd", SCHEME, [GRAPH, LAST.replace("last", "renormalise")], SCALED),
    "the last as printed": ("qdfedavgm", LITERAL, [GRAPH, LAST, "algorithm.form=literal"], "literal gives a missing"),
    "sparse, compressed": ("dispfl", "sparse=True", [GRAPH, QSGD], "NAME sends sparse vectors"),
    "sparse, the last": ("dispfl", "sparse=True", [GRAPH, LAST], "NAME averages each coordinate"),
    "sparse, undone": ("dispfl", "sparse=True", [GRAPH, *UNDO], UNDONE),
    "exact average": ("slowmo", "", ["topology=full", QSGD], "NAME needs the exact average"),
    "exact, stale": ("slowmo", "", ["topology=full", STALE], "NAME needs the exact average of one round"),
    "counterpart": ("lian_dpsgd", 'counterpart="choco_sgd"', [GRAPH, QSGD], "NAME averages whole models"),
    "pairs catch up": ("ad_psgd", "", [GRAPH, CATCH_UP], "a round of NAME is a meeting of two"),
    "pairs compressed": ("ad_psgd", "", [GRAPH, QSGD], "NAME exchanges whole models"),
    "pictures": ("dynafed", "augments=True", [SERVER, "algorithm.augment=[flip]"], "NAME would augment pictures"),
}


def said(folder: Path, algorithm: str, sets: list[str]) -> set[str]:
    """What loading finds wrong, or notices, with NAME for the algorithm's."""
    file = folder / "scenario.yaml"
    file.write_text(f"{SCENARIO}algorithm: {{name: {algorithm!r}}}\n")
    try:
        found: list[str] = list(load(file, sets).notices)
    except ScenarioError as error:
        found = [f"{problem.what}, {problem.remedy}" for problem in error.problems]
    return {re.sub(rf"\b{re.escape(algorithm)}\b", "NAME", each) for each in found}


def own(folder: Path, name: str, traits: str) -> str:
    """An algorithm of one's own that is built as `name`, and says `traits` of itself."""
    (folder / "mine.py").write_text(OWN.replace("NAME", name).replace("TRAITS", traits))
    return "mine:algorithm"


@pytest.mark.parametrize("case", CASES)
def test_what_an_own_algorithm_says_of_itself_is_checked_as_of_ours(case: str, tmp_path: Path) -> None:
    name, traits, sets, sentence = CASES[case]
    ours = {each for each in said(tmp_path, name, sets) if sentence in each}
    assert ours
    assert ours <= said(tmp_path, own(tmp_path, name, traits), sets)


@pytest.mark.parametrize("case", [case for case, (_, traits, *_) in CASES.items() if traits])
def test_without_the_trait_nothing_is_said(case: str, tmp_path: Path) -> None:
    name, _, sets, sentence = CASES[case]
    assert not {each for each in said(tmp_path, own(tmp_path, name, ""), sets) if sentence in each}
