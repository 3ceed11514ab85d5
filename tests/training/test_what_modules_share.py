"""What a user's code shares between modules, and all that a module reaches: each kind of place by a row of a table."""

from __future__ import annotations

import random
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from netdfl.training.models.common import SharedStateWatch
from netdfl.training.models.reach import ModuleWatch, places, same, told

OWN = """
from collections import deque
import numpy as np
import torch
from torch import nn
import shared_other

BY_FORWARD = IN_INNER = BY_HELPER = BY_PROPERTY = BY_STATIC = BY_CLASS = BY_CONFIG = UNNAMED = 1
TABLE, LINE, WORDS, ROW = {"a": [1]}, deque([1, 2]), {1}, np.zeros(2)
PAIR = ([1], 2)
TENSOR, SPARSE, LATER = torch.zeros(2), torch.zeros(2).to_sparse(), 1
LAYER = nn.BatchNorm1d(2)

class Plain:
    total = 0
    def __init__(self):
        self.count, self.inside = 0, [1]

class Slotted:
    __slots__ = ("count",)

class Config:
    rate = 1
    def inner(self):
        return BY_CONFIG

HELD, SLOTS = Plain(), Slotted()

def helper():
    return BY_HELPER

class Base(nn.Linear):
    calls = 0
    @property
    def a(self):
        return BY_PROPERTY
    @staticmethod
    def b():
        return BY_STATIC
    @classmethod
    def c(cls):
        return BY_CLASS

class Net(Base):
    history = []
    def __init__(self):
        super().__init__(2, 2)
        self.plain = Plain()
    def forward(self, x):
        def inner():
            return IN_INNER
        used = BY_FORWARD, TABLE, LINE, WORDS, ROW, PAIR, TENSOR, SPARSE, LATER, LAYER, HELD, SLOTS
        return super().forward(x) * shared_other.SCALE + helper() + Config.rate
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A user's module, whose forward names what lies in it and in another one."""
    (tmp_path / "shared_other.py").write_text("SCALE = 1\nUNNAMED = 1\n")
    (tmp_path / "shared_own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    import shared_own  # type: ignore[import-not-found]

    yield shared_own
    for name in ("shared_own", "shared_other"):
        del sys.modules[name]


def again(own: Any) -> None:
    own.TENSOR.data = own.TENSOR.data.clone()


CHANGES: dict[str, tuple[Callable[[Any], object], str | None]] = {
    "a global that forward names": (lambda own: setattr(own, "BY_FORWARD", 2), "shared_own.BY_FORWARD"),
    "of another type": (lambda own: setattr(own, "BY_FORWARD", 1.0), "shared_own.BY_FORWARD"),
    "that is gone": (lambda own: delattr(own, "BY_FORWARD"), "shared_own.BY_FORWARD"),
    "that a function in it names": (lambda own: setattr(own, "IN_INNER", 2), "shared_own.IN_INNER"),
    "that a helper names": (lambda own: setattr(own, "BY_HELPER", 2), "shared_own.BY_HELPER"),
    "that a property names": (lambda own: setattr(own, "BY_PROPERTY", 2), "shared_own.BY_PROPERTY"),
    "that a static method names": (lambda own: setattr(own, "BY_STATIC", 2), "shared_own.BY_STATIC"),
    "that a class method names": (lambda own: setattr(own, "BY_CLASS", 2), "shared_own.BY_CLASS"),
    "that a class's method names": (lambda own: setattr(own, "BY_CONFIG", 2), "shared_own.BY_CONFIG"),
    "that nothing names": (lambda own: setattr(own, "UNNAMED", 2), None),
    "a global of another module": (lambda own: setattr(own.shared_other, "SCALE", 2), "shared_other.SCALE"),
    "that nothing names there": (lambda own: setattr(own.shared_other, "UNNAMED", 2), None),
    "a list in a dict": (lambda own: own.TABLE["a"].append(2), "shared_own.TABLE['a']"),
    "a number in a list in a dict": (lambda own: own.TABLE.update(a=[2]), "shared_own.TABLE['a'][0]"),
    "a list in a tuple": (lambda own: own.PAIR[0].append(2), "shared_own.PAIR[0]"),
    "a deque": (lambda own: own.LINE.rotate(), "shared_own.LINE[1]"),
    "a set": (lambda own: own.WORDS.add(2), "shared_own.WORDS"),
    "an array": (lambda own: own.ROW.fill(2), "shared_own.ROW"),
    "a tensor in place": (lambda own: own.TENSOR.add_(0), "shared_own.TENSOR"),
    "a tensor's memory": (again, "shared_own.TENSOR"),
    "another tensor": (lambda own: setattr(own, "TENSOR", torch.ones(2)), "shared_own.TENSOR"),
    "an equal tensor": (lambda own: setattr(own, "TENSOR", torch.zeros(2)), None),
    "a number for a tensor": (lambda own: setattr(own, "TENSOR", 0), "shared_own.TENSOR"),
    "a tensor for a number": (lambda own: setattr(own, "LATER", torch.ones(1)), "shared_own.LATER"),
    "a sparse tensor": (lambda own: own.SPARSE.add_(torch.ones(2).to_sparse()), "shared_own.SPARSE"),
    "a module's parameter": (lambda own: own.LAYER.weight.add_(1), "shared_own.LAYER.weight"),
    "a module's buffer": (lambda own: own.LAYER.running_mean.add_(1), "shared_own.LAYER.running_mean"),
    "an object's attribute": (lambda own: setattr(own.HELD, "count", 2), "shared_own.HELD.count"),
    "a list in an object": (lambda own: own.HELD.inside.append(2), "shared_own.HELD.inside"),
    "a class's attribute": (lambda own: own.Net.history.append(2), "Net.history"),
    "one that is new": (lambda own: setattr(own.Net, "fresh", 2), "Net.fresh"),
    "one of its base": (lambda own: setattr(own.Base, "calls", 2), "Base.calls"),
    "one of what it holds": (lambda own: setattr(own.Plain, "total", 2), "Plain.total"),
    "one of a class that it names": (lambda own: setattr(own.Config, "rate", 2), "Config.rate"),
    "a method": (lambda own: setattr(own.Base, "a", property(lambda self: 3)), None),
    "what Python keeps of a class": (lambda own: setattr(own.Net, "__doc__", "new"), None),
    "nothing": (lambda own: None, None),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_modules_of_a_kind_share_is_told_by_its_place_until_it_is_settled(
    name: str, own: ModuleType
) -> None:
    change, place = CHANGES[name]
    common = SharedStateWatch(own.Net())
    with torch.no_grad():
        assert common.changed() is None
        change(own)
        assert common.changed() == place
        common.settle()
        assert common.changed() is None


def test_of_several_that_are_gone_the_first_by_name_is_told(own: ModuleType) -> None:
    common = SharedStateWatch(own.Net())
    del own.TABLE, own.BY_FORWARD, own.WORDS
    assert common.changed() == "shared_own.BY_FORWARD"


def test_a_class_that_was_made_elsewhere_is_a_users_where_a_method_is(own: ModuleType) -> None:
    class Odd(nn.Linear):
        calls = 0

        def forward(self, x: Any) -> Any:
            return x

    Odd.__module__ = own.Net.__module__ = "nowhere_at_all"
    kinds = {"test_a_class_that_was_made_elsewhere_is_a_users_where_a_method_is.<locals>.Odd.calls": Odd}
    kinds["Net.calls"] = own.Net
    for place, kind in kinds.items():
        common = SharedStateWatch(kind() if kind is own.Net else kind(2, 2))
        kind.calls = 1
        assert common.changed() == place
    Bare = type("Bare", (nn.Linear,), {"calls": 0, "__module__": "nowhere_at_all"})
    common = SharedStateWatch(Bare(2, 2))
    Bare.calls = 1  # type: ignore[attr-defined]
    assert common.changed() is None, "nothing of it is in a user's file"


# in reach of a module


class Held:
    def __init__(self) -> None:
        self.first, self.second = 1, "b"

    def step(self) -> None: ...


class Slots:
    __slots__ = ()


def closing() -> Callable[..., Any]:
    kept, later = [5], 6

    def function(a: int = 3, *, b: int = 4) -> Any:
        return kept, later, unset

    if later > 6:
        unset = 7
    return function


FROZEN = nn.Parameter(torch.ones(1), requires_grad=False)
HELD, LIST = Held(), [1]
REACH: dict[str, tuple[Any, list[str]]] = {
    "a number": (1, ["kept"]),
    "a dict": ({"a": 1, 2: 3}, ["kept", "kept['a']", "kept[2]"]),
    "a long key": ({"a" * 50: 1}, ["kept", f"kept['{'a' * 39}]"]),
    "a list": ([1, (2, 3)], ["kept", "kept[0]", "kept[1]", "kept[1][0]", "kept[1][1]"]),
    "a deque": (deque([1]), ["kept", "kept[0]"]),
    "twice the same": ([LIST, LIST, 1, 1], ["kept", "kept[0]", "kept[0][0]", "kept[2]", "kept[3]"]),
    "a partial": (
        partial(HELD.step, 1, a=2),
        [
            *("kept", "kept of", "kept of of", "kept of of.first", "kept of of.second"),
            *("kept of by", "kept of by defaults", "kept of by named"),
            *("kept args", "kept args[0]", "kept named", "kept named['a']"),
        ],
    ),
    "a function": (
        closing(),
        [
            *("kept", "kept defaults", "kept defaults[0]", "kept named", "kept named['b']"),
            *("kept kept", "kept kept[0]", "kept later"),
        ],
    ),
    "a function of torch's": (torch.nn.functional.relu, ["kept"]),
    "an object": (Held(), ["kept", "kept.first", "kept.second"]),
    "an object of torch's": (torch.Generator(), ["kept"]),
    "an optimizer": (torch.optim.SGD([torch.ones(1)], lr=0.1), ["kept"]),
    "an object without attributes": (Slots(), ["kept"]),
    "a generator": (random.Random(1), ["kept"]),
    "a tensor": (torch.ones(1), ["kept"]),
    "an array": (np.ones(1), ["kept"]),
    "a class": (Held, []),
    "a module of Python's": (random, []),
    "a built-in function": (len, []),
    "a weak reference": (weakref.ref(HELD), []),
    "an empty dict": ({}, []),
    "nothing": (None, ["kept"]),
}


@pytest.mark.parametrize("name", REACH)
def test_all_in_reach_is_found_once_in_its_order_by_its_place(name: str) -> None:
    kept, expected = REACH[name]
    module = nn.Identity()
    module.kept = kept
    found = [place for place, _ in places(module)]
    assert [place for place in found if not place.startswith("_")] == ["", *expected]


def test_buffers_come_first_also_where_they_are_trained_and_hooks_with_their_tensor() -> None:
    module = nn.Sequential(nn.Linear(1, 1, bias=False))
    module.register_buffer("seen", torch.ones(1, requires_grad=True))
    module.register_parameter("still", FROZEN)
    module[0].weight.register_hook(HELD.step)
    found = [place for place, _ in places(module)]
    assert found[:2] == ["seen", "still"]
    assert [place for place in found if "hook" in place][:2] == ["0.weight hook", "0.weight hook of"]
    assert "0" in found
    table_of_modules = {name for name in vars(nn.Module()) if name.endswith("modules")}
    assert table_of_modules
    assert not {"training", "0.training", "0.weight", *table_of_modules} & set(found)


def test_what_tells_a_change_is_by_the_kind_of_thing() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2)

    given, old = numbers(), np.random.RandomState(3)
    begun = told(given), told(old)
    assert (told(given), told(old)) == begun
    next(given)
    old.rand()
    assert told(given) != begun[0]
    assert told(old) != begun[1]
    assert told(old)[1:] == old.get_state()[2:]
    assert list(given) == [2]
    assert told(given) is None
    assert told({1: 2}) == told((1,)) == told([1]) == told(deque([1])) == 1
    assert told(closing()) is told(closing())
    assert told({1}) == {1}
    assert told(Held()) is Held
    values: list[Any] = [1, "a", None, torch.ones(1), np.ones(1), Slots()]
    assert all(told(value) is value for value in values)
    for make in (lambda: torch.Generator().manual_seed(2), lambda: np.random.default_rng(2), lambda: random.Random(2)):
        assert same(told(make()), told(make()))


def test_a_watch_looks_at_tensors_but_for_those_that_it_is_told() -> None:
    module = nn.BatchNorm1d(2)
    watch, but = ModuleWatch(module, ()), ModuleWatch(module, {"running_mean"})
    assert watch.untouched()
    assert module.running_mean is not None
    module.running_mean.add_(1)
    assert not watch.untouched()
    assert but.untouched()
    with torch.inference_mode():
        module.register_buffer("seen", torch.ones(1))
    assert ModuleWatch(module, ()).untouched()
