"""A mixing of a user's own gives a number of exchanges and a weight that can be used, or is told what it gave."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import netdfl
from netdfl.algorithms.own import checked_steps, checked_weight
from netdfl.core.errors import OwnPartError
from netdfl.extend import RowMixing, ShareMixing


class Rows(RowMixing):
    """A mixing by rows."""


class Shares(ShareMixing):
    """A mixing by shares."""


@pytest.mark.parametrize(("found", "steps"), [(0, 0), (3, 3), (1024, 1024), (2.0, 2), (np.int64(2), 2), (True, 1)])
def test_a_whole_number_of_exchanges_is_taken(found: Any, steps: int) -> None:
    assert checked_steps(Rows(), found, 1024) == steps


@pytest.mark.parametrize("found", [-1, 1.5, 1025, nan, inf, None, "2"])
def test_another_number_of_exchanges_is_refused(found: Any) -> None:
    with pytest.raises(OwnPartError, match=r"Rows returned .* from num_steps: return an int"):
        checked_steps(Rows(), found, 1024)


@pytest.mark.parametrize("found", [1, 1.0, 0.25, -2.0, np.float64(0.5)])
def test_a_weight_to_divide_by_is_taken(found: Any) -> None:
    assert checked_weight(Rows(), found) == checked_weight(Shares(), found) == found


def test_push_sum_may_have_no_mass() -> None:
    assert checked_weight(Shares(), 0.0) == 0
    with pytest.raises(OwnPartError, match=r"Rows returned 0\.0 from weight: return a float by which x can be divided"):
        checked_weight(Rows(), 0.0)


@pytest.mark.parametrize("mixing", [Rows(), Shares()])
@pytest.mark.parametrize("found", [nan, inf, None, "x"])
def test_a_weight_that_is_no_number_is_refused(mixing: Any, found: Any) -> None:
    with pytest.raises(OwnPartError, match="from weight: return a float by which x can be divided"):
        checked_weight(mixing, found)


OWN = """
from netdfl.extend import AnySgd, MixResult, RowMixing, gossip, local_sgd, pack, to_all, weighted_mean
from typing import NamedTuple


class Rounds(NamedTuple):
    past: int


class Own(RowMixing):
    def init(self, x, view):
        return Rounds(0)

    def num_steps(self, round, view):
        return STEPS if round == 3 else 1

    def weight(self, state):
        return WEIGHT if state.past == 4 else 1.0

    def outgoing(self, state, update, step, view):
        return state, to_all(view, pack(update.x))

    def mix(self, state, update, inbox, step, view):
        return MixResult(Rounds(state.past + 1), update._replace(x=weighted_mean(view, inbox, update.x)))


def mine(exchange, /, *, sgd: AnySgd = AnySgd(local_steps=1)):
    return gossip(exchange, local_sgd(sgd), mixing=Own())
"""


@pytest.mark.parametrize(
    ("steps", "weight", "said"),
    [
        ("1", "1.0", ""),
        ("-1", "1.0", "Own returned -1 from num_steps"),
        ("1", "float('nan')", "Own returned nan from weight"),
        ("1", "0", "Own returned 0 from weight"),
    ],
)
def test_a_run_ends_with_what_the_mixing_gave_in_a_late_round(
    steps: str, weight: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(OWN.replace("STEPS", steps).replace("WEIGHT", weight))
    text = "schema: netdfl/1\nname: late\nnodes: 4\nrounds: 6\nworld: simulated\ntopology: ring\n"
    (tmp_path / "s.yaml").write_text(text + "task: {kind: quadratic, dim: 3}\nalgorithm: 'own:mine'\n")
    result = netdfl.run(tmp_path / "s.yaml", out=tmp_path / "run", page=False).result
    assert (result["verdict"] == "done") is not said
    told = " ".join(result["reasons"])
    assert (said in told and "round 3: " in told and f"({tmp_path}/own.py:" in told) if said else not told
