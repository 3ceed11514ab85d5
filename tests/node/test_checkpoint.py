"""A saved state comes back the same, whatever it is made of, and nothing else is taken for it."""

from __future__ import annotations

import math
from collections import namedtuple
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from netdfl.algorithms.base import NodeState
from netdfl.core.errors import InputError
from netdfl.mixing.gossip import GossipState
from netdfl.mixing.push_sum import PushSumState
from netdfl.node.checkpoint import load_state, save_state
from netdfl.testing.contract import equal
from netdfl.training.base import Received
from netdfl.training.ole import OleState
from netdfl.training.sgd import NoState


class Inner(NamedTuple):
    value: Any
    other: Any = None


class Outer(NamedTuple):
    a: Any
    b: Any
    c: Any


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
SHAPES = st.sampled_from([(), (0,), (1,), (5,), (2, 3)])


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    values = torch.randint(-3, 200, draw(SHAPES), generator=generator).to(draw(st.sampled_from(DTYPES)))
    return values.T if values.dim() == 2 and draw(st.booleans()) else values


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
KEYS = st.one_of(st.integers(-5, 5), st.text(max_size=2))
VALUES = st.recursive(
    SCALARS | tensors(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Inner, inner, inner),
    ),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(state=st.builds(Outer, VALUES, VALUES, VALUES))
def test_what_was_saved_is_loaded(state: Outer, tmp_path: Path) -> None:
    save_state(state, tmp_path / "state")
    assert equal(load_state(tmp_path / "state", state), state)


def node_state(dim: int = 3, mixing: Any = None) -> NodeState:
    x = torch.arange(dim, dtype=torch.float64)
    return NodeState(0, x, OleState(x), NoState(), mixing or GossipState({}), Received())


def test_a_first_state_is_enough_to_load_a_later_one(tmp_path: Path) -> None:
    first = node_state()
    extras = {"control": torch.ones(3)}
    later = first._replace(
        round=7,
        mixing=GossipState({4: torch.zeros(3), 11: torch.ones(3)}, slots={4: (2, 0), 11: (6, 1)}, staleness=0.5),
        received=Received(extras),
    )
    save_state(later, tmp_path / "state")
    loaded = load_state(tmp_path / "state", first)
    assert equal(loaded, later)
    assert list(loaded.mixing.last) == [4, 11]
    assert loaded.mixing.slots == {4: (2, 0), 11: (6, 1)}
    assert loaded.x is loaded.start.previous, "what was one vector became two"


def test_a_named_tuple_that_the_first_state_does_not_show_is_found_beside_one_that_it_does(tmp_path: Path) -> None:
    save_state(Outer({1: Inner(2)}, None, None), tmp_path / "state")
    assert load_state(tmp_path / "state", Outer({}, None, None)).a == {1: Inner(2)}


def test_saving_again_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    for round in (1, 2):
        save_state(node_state()._replace(round=round), tmp_path / "state")
    assert load_state(tmp_path / "state", node_state()).round == 2
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_numbers_come_back_exactly(tmp_path: Path) -> None:
    state = Outer(0.1 + 0.2, math.inf, Inner(-0.0, 2**70))
    save_state(state, tmp_path / "state")
    loaded = load_state(tmp_path / "state", state)
    assert loaded == state
    assert math.copysign(1, loaded.c.value) == -1


@pytest.mark.parametrize(
    ("saved", "like", "named"),
    [
        (node_state(3), node_state(4), r"NodeState.x: expected torch.float64 \[4\], got torch.float64 \[3\]"),
        (node_state(mixing=PushSumState(1.0)), node_state(), "NodeState.mixing: expected .*GossipState"),
        (Inner(1), node_state(), "expected .*NodeState with round, x, start"),
    ],
)
def test_another_algorithms_or_models_state_is_refused(saved: Any, like: Any, named: str, tmp_path: Path) -> None:
    save_state(saved, tmp_path / "state")
    with pytest.raises(InputError, match=named):
        load_state(tmp_path / "state", like)


@pytest.mark.parametrize(
    ("fields", "refused"),
    [("value", None), ("other", "expected .*Inner with value, other"), ("value more", "expected .*Inner with value")],
)
def test_a_field_that_came_later_is_what_it_is_by_default(fields: str, refused: str | None, tmp_path: Path) -> None:
    earlier = namedtuple("Inner", fields, module=__name__)
    save_state(Outer(earlier(*range(len(earlier._fields))), None, None), tmp_path / "state")
    like = Outer(Inner(0), None, None)
    if refused is None:
        assert load_state(tmp_path / "state", like).a == Inner(0, None)
    else:
        with pytest.raises(InputError, match=refused):
            load_state(tmp_path / "state", like)


def test_a_damaged_or_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with pytest.raises(InputError, match=r"expected a checkpoint.*delete it to begin that node anew"):
        load_state(path, node_state())
    save_state(node_state(), path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InputError, match=r"expected a checkpoint.*delete it to begin that node anew"):
        load_state(path, node_state())


def test_what_can_not_be_kept_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    save_state(node_state(), tmp_path / "state")
    with pytest.raises(TypeError, match=r"NodeState.mixing\[0\] is a Generator"):
        save_state(node_state(mixing=[torch.Generator()]), tmp_path / "state")
    assert equal(load_state(tmp_path / "state", node_state()), node_state())
