"""What lies in a module's reach, place by place, and what its class and the globals that it names have in common."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from netdfl.training.models import common, reach
from netdfl.training.models.common import SharedStateWatch
from netdfl.training.models.reach import ModuleWatch, is_filled, places, told


class Holder(nn.Module):
    """Holds one thing."""

    def __init__(self, kept: Any) -> None:
        super().__init__()
        self.kept = kept


class Plain:
    def __init__(self) -> None:
        self.count = 0

    def step(self) -> None: ...


def closing(value: Any) -> Callable[..., Any]:
    def function(a: Any = 3, *, b: Any = 4) -> Any:
        return value

    return function


def of_function(place: str) -> list[str]:
    return [place, f"{place} defaults", f"{place} named"]


def of_nowhere() -> Callable[[], int]:
    value = 7

    def function() -> int:
        return value

    function.__module__ = None  # type: ignore[assignment]
    return function


def kept_at(kept: Any) -> list[str]:
    """The places at which what a module keeps is found, without those that torch's own module has."""
    return [place for place, _ in places(Holder(kept)) if place.startswith("kept")]


HELD: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "a number": (lambda: 1, ["kept"]),
    "a list": (lambda: [1, [2]], ["kept", "kept[0]", "kept[1]", "kept[1][0]"]),
    "a tuple": (lambda: (1,), ["kept", "kept[0]"]),
    "a deque": (lambda: deque([1]), ["kept", "kept[0]"]),
    "a dict": (lambda: {"a": 1, 2: "b"}, ["kept", "kept['a']", "kept[2]"]),
    "a dict with a long key": (lambda: {"a" * 99: 1}, ["kept", f"kept['{'a' * 39}]"]),
    "an empty dict": (dict, []),
    "a set": (lambda: {1}, ["kept"]),
    "an object": (Plain, ["kept", "kept.count"]),
    "a method": (lambda: Plain().step, ["kept", "kept of", "kept of.count", *of_function("kept by")]),
    "a function": (
        lambda: closing(7),
        ["kept", "kept defaults", "kept defaults[0]", "kept named", "kept named['b']", "kept value"],
    ),
    "a function of nowhere": (of_nowhere, ["kept", "kept defaults", "kept named", "kept value"]),
    "a partial": (
        lambda: partial(len, 1, b=2),
        ["kept", "kept args", "kept args[0]", "kept named", "kept named['b']"],
    ),
    "one thing twice": (lambda: [both := [1], both], ["kept", "kept[0]", "kept[0][0]"]),
    "one number twice": (lambda: [1, 1], ["kept", "kept[0]", "kept[1]"]),
    "a class": (lambda: Plain, []),
    "a module": (lambda: random, []),
    "a built-in function": (lambda: len, []),
    "a generator of Python": (lambda: random.Random(3), ["kept"]),
    "a generator of torch": (torch.Generator, ["kept"]),
    "a dataset of torch": (lambda: TensorDataset(torch.zeros(1)), ["kept"]),
    "a function of torch": (lambda: torch.nn.functional.relu, ["kept"]),
    "a tensor": (lambda: torch.zeros(2), ["kept"]),
    "an array": (lambda: np.zeros(2), ["kept"]),
    "a trained parameter": (lambda: nn.Parameter(torch.zeros(2)), []),
    "a module of torch": (nn.Identity, ["kept", "kept._is_full_backward_hook"]),
}


@pytest.mark.parametrize("name", HELD)
def test_each_thing_in_reach_is_found_at_its_place(name: str) -> None:
    make, expected = HELD[name]
    assert kept_at(make()) == expected


def test_no_more_places_are_looked_at_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "MOST_PLACES", 4)
    assert len(list(places(Holder([1, 2, 3])))) == 4


def test_a_cell_is_filled_once_it_holds_something() -> None:
    def outer(fill: bool) -> Callable[[], Any]:
        if fill:
            value = 0
        return lambda: value

    filled, empty = (outer(fill).__closure__ for fill in (True, False))
    assert filled is not None
    assert empty is not None
    assert (is_filled(filled[0]), is_filled(empty[0])) == (True, False)
    assert kept_at(outer(False)) == of_function("kept")


def test_what_tells_of_a_change_is_what_the_thing_says_of_itself() -> None:
    numbers = (number for number in range(3))
    before = told(numbers)
    assert next(numbers) == 0
    then = told(numbers)
    list(numbers)
    assert then != before
    assert (told(numbers), told(deque([1, 2])), told({1}), told(len)) == (None, 2, {1}, len)
    assert told(closing(1)) is told(closing(2)) is not told(Plain.step)


def test_a_watch_is_not_told_by_the_buffers_that_are_left_out() -> None:
    module = nn.BatchNorm1d(2)
    watch = ModuleWatch(module, ("running_mean",))
    module.running_mean.add_(1)  # type: ignore[union-attr]
    assert watch.untouched()
    module.running_var.add_(1)  # type: ignore[union-attr]
    assert not watch.untouched()


def test_a_tensor_of_inference_mode_has_no_versions_to_watch() -> None:
    with torch.inference_mode():
        kept = torch.zeros(2)
    assert ModuleWatch(Holder(kept), ()).untouched()


@pytest.mark.parametrize("kept", [(1, 2), [1, [2]], {"a": [1]}, Plain(), closing([1]), random.Random(1), {1, 2}])
def test_what_nobody_touches_is_untouched(kept: Any) -> None:
    module = Holder(kept)
    watch = ModuleWatch(module, ())
    assert watch.untouched()
    module.kept = 3
    assert not watch.untouched()


# what all modules of a kind have in common

OWN = """
import torch
import helpers
from torch import nn

COUNT, TABLE, NESTED, INSIDE = 0, {"a": 1}, [[0]], 0
class Other:
    def __init__(self): self.steps = 0
    def step(self): return 1
OTHER = Other()
def count(): return COUNT
def within():
    return [INSIDE for _ in range(1)]
class Net(nn.Module):
    total, __hidden = 0, 0
    __slots__ = ()
    def forward(self, x):
        return x * count() * len(TABLE) * len(NESTED) * helpers.SCALE * OTHER.steps * len(within()) * torch.pi
    @classmethod
    def of(cls): return LATER
    @property
    def size(self): return SIZE
LATER, SIZE, UNNAMED = 0, 0, 0
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A user's module, which names another one of theirs."""
    (tmp_path / "helpers.py").write_text("SCALE, OTHERS = 1, 0\n")
    (tmp_path / "own_net.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_net

    yield own_net
    for name in ("own_net", "helpers"):
        sys.modules.pop(name)


def put(owner: str, name: str, value: Any) -> Callable[[Any], None]:
    def touch(own: Any) -> None:
        setattr(getattr(own, owner) if owner else own, name, value)

    return touch


TOUCHED: dict[str, tuple[Callable[[Any], None], str | None]] = {
    "a global of a function that is called": (put("", "COUNT", 1), "own_net.COUNT"),
    "a global within a function's own": (put("", "INSIDE", 1), "own_net.INSIDE"),
    "a global of a class method": (put("", "LATER", 1), "own_net.LATER"),
    "a global of a property": (put("", "SIZE", 1), "own_net.SIZE"),
    "a number that becomes a tensor": (put("", "COUNT", torch.zeros(1)), "own_net.COUNT"),
    "a global that goes": (lambda own: delattr(own, "COUNT"), "own_net.COUNT"),
    "two globals that go": (lambda own: (delattr(own, "INSIDE"), delattr(own, "COUNT")), "own_net.COUNT"),
    "a dict": (lambda own: own.TABLE.update(a=2), "own_net.TABLE['a']"),
    "a list in a list": (lambda own: own.NESTED[0].append(1), "own_net.NESTED[0]"),
    "a number in a list in a list": (lambda own: own.NESTED[0].__setitem__(0, 5), "own_net.NESTED[0][0]"),
    "an object of a class of theirs": (lambda own: setattr(own.OTHER, "steps", 2), "own_net.OTHER.steps"),
    "another object": (lambda own: setattr(own, "OTHER", 3), "own_net.OTHER"),
    "a class's attribute": (put("Net", "total", 1), "Net.total"),
    "a class's private attribute": (put("Net", "_Net__hidden", 1), "Net._Net__hidden"),
    "a global of another module of theirs": (put("helpers", "SCALE", 2), "helpers.SCALE"),
    "a global that nobody names": (put("", "UNNAMED", 1), None),
    "a global of another module that nobody names": (put("helpers", "OTHERS", 2), None),
    "a global of a library": (lambda own: setattr(own.torch, "pi", own.torch.pi + 0), None),
    "what a class says of itself": (put("Net", "__doc__", "new"), None),
    "a method": (put("Net", "of", lambda: 0), None),
    "a static method": (put("Net", "of", staticmethod(len)), None),
    "a function of theirs": (put("", "count", lambda: 0), None),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_a_change_of_what_modules_of_a_kind_share_is_told_by_its_name(own: Any, name: str) -> None:
    touch, place = TOUCHED[name]
    shared = SharedStateWatch(own.Net())
    assert shared.changed() is None
    touch(own)
    assert shared.changed() == place
    shared.settle()
    assert shared.changed() is None


def test_tensors_of_all_modules_are_told_by_what_they_hold_where_they_lie_and_how_often_they_were_written() -> None:
    class Net(nn.Module):
        total = torch.zeros(2)
        sparse = torch.eye(2).to_sparse()
        seen = np.zeros(2)
        names: set[str] = set()  # noqa: RUF012 - that is what is tried
        inner = nn.Linear(2, 1)

    def write(data: Tensor) -> None:
        Net.total.data = data

    for touch, place in (
        (lambda: Net.total.add_(0), "total"),
        (lambda: write(torch.zeros(2)), "total"),
        (lambda: Net.seen.__setitem__(0, 1), "seen"),
        (lambda: Net.names.add("a"), "names"),
        (lambda: Net.inner.bias.data.add_(1) and Net.inner.bias.add_(0), "inner.bias"),
        (lambda: setattr(Net, "total", None), "total"),
        (lambda: setattr(Net, "total", torch.ones(1)), "total"),
    ):
        shared = SharedStateWatch(Net())
        assert shared.changed() is None
        with torch.no_grad():
            touch()
        assert shared.changed() == f"{Net.__qualname__}.{place}"


def test_of_what_modules_share_no_more_is_looked_at_than_so_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        numbers = list(range(9))  # noqa: RUF012 - that is what is tried

    monkeypatch.setattr(common, "MOST_PLACES", 4)
    shared = SharedStateWatch(Net())
    Net.numbers[0] = -1
    assert shared.changed() is None
    Net.numbers[-1] = -1
    assert shared.changed() is not None


def test_what_holds_itself_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(nn.Module):
        count = 0
        ring: list[Any] = []  # noqa: RUF012 - that is what is tried

    Net.ring.append(Net.ring)
    monkeypatch.setattr(common, "MOST_PLACES", 9)
    shared = SharedStateWatch(Net())
    assert shared.changed() is None
    Net.count = 1
    assert shared.changed() == f"{Net.__qualname__}.count"


def test_a_class_that_a_user_did_not_write_is_theirs_where_a_method_is(own: Any) -> None:
    made = type("Made", (nn.Module,), {"forward": own.Net.forward, "count": 0, "__module__": "nowhere"})
    shared = SharedStateWatch(made())
    made.count = 1  # type: ignore[attr-defined]
    assert shared.changed() == "Made.count"
    bare = type("Bare", (nn.Module,), {"count": 0, "__module__": "nowhere"})
    shared = SharedStateWatch(bare())
    bare.count = 1  # type: ignore[attr-defined]
    assert shared.changed() is None
    assert isinstance(own, ModuleType)
