"""What a module keeps, of whatever kind: each copy has its own, a change is told by its place, or it is refused."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from netdfl.core.errors import TrainingError
from netdfl.training.flat import FlatModel
from netdfl.training.models.copying import copied
from netdfl.training.models.reach import ModuleWatch, places, same, told
from netdfl.training.models.state import OriginalModule

X, Y = torch.ones(4, 3), torch.arange(4) % 2


class Net(nn.Module):
    """Holds one thing more, which its forward hands to `touch`."""

    def __init__(self, kept: Any, touch: Callable[[Any], Any]) -> None:
        super().__init__()
        self.last = nn.Linear(3, 2)
        self.kept, self.touch = kept, touch

    def forward(self, x: Tensor) -> Tensor:
        self.touch(self)
        return self.last(x)  # type: ignore[no-any-return]


class Plain:
    def __init__(self) -> None:
        self.count, self.inside = 0, [1, 2]

    def step(self) -> None:
        self.count += 1


def counter() -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return count

    return step


def outer() -> Callable[..., Any]:
    nothing = None
    return lambda: nothing


def replaced(module: Any) -> None:
    module.kept = 7


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], str]] = {
    "a number": (lambda: 0, replaced, "kept"),
    "nothing": (lambda: None, replaced, "kept"),
    "a list that grows": (lambda: [1], lambda m: m.kept.append(2), "kept"),
    "a list that shrinks": (lambda: [1, 2], lambda m: m.kept.pop(), "kept"),
    "a list of the same length": (lambda: [1, 2], lambda m: m.kept.reverse(), "kept[0]"),
    "a dict": (lambda: {"a": 1}, lambda m: m.kept.update(a=2), "kept['a']"),
    "a list in a dict in a tuple": (lambda: ({"a": [0]},), lambda m: m.kept[0]["a"].append(1), "kept[0]['a']"),
    "a deque": (lambda: deque([1, 2], 2), lambda m: m.kept.append(3), "kept[0]"),
    "a set": (lambda: {1}, lambda m: m.kept.add(2), "kept"),
    "an array": (lambda: np.zeros(3), lambda m: m.kept.__setitem__(1, 5), "kept"),
    "an array's type": (lambda: np.zeros(2), lambda m: setattr(m, "kept", m.kept.astype(np.int64)), "kept"),
    "a tensor in place": (lambda: torch.zeros(3), lambda m: m.kept.add_(1), "kept"),
    "a tensor anew": (lambda: torch.zeros(3), lambda m: setattr(m, "kept", m.kept + 1), "kept"),
    "a tensor's shape": (lambda: torch.zeros(4), lambda m: setattr(m, "kept", m.kept.view(2, 2)), "kept"),
    "a tensor's type": (lambda: torch.zeros(4), lambda m: setattr(m, "kept", m.kept.double()), "kept"),
    "a tensor that is computed": (lambda: torch.ones(2, requires_grad=True) * 2, lambda m: replaced(m), "kept"),
    "a frozen parameter": (
        lambda: nn.Parameter(torch.zeros(2), requires_grad=False),
        lambda m: m.kept.add_(1),
        "kept",
    ),
    "an object": (Plain, lambda m: m.kept.step(), "kept.count"),
    "a list in an object": (Plain, lambda m: m.kept.inside.append(3), "kept.inside"),
    "a method": (lambda: Plain().step, lambda m: m.kept(), "kept of.count"),
    "a closure": (counter, lambda m: m.kept(), "kept count"),
    "a closure in a list": (lambda: [counter()], lambda m: m.kept[0](), "kept[0] count"),
    "what a partial holds": (lambda: partial(list.append, []), lambda m: m.kept(1), "kept args[0]"),
    "what a partial is of": (lambda: partial(counter()), lambda m: m.kept(), "kept of count"),
    "a torch.Generator": (
        lambda: torch.Generator().manual_seed(3),
        lambda m: torch.rand(1, generator=m.kept),
        "kept",
    ),
    "a generator of numpy": (lambda: np.random.default_rng(3), lambda m: m.kept.random(), "kept"),
    "an old generator of numpy": (lambda: np.random.RandomState(3), lambda m: m.kept.rand(), "kept"),
    "a generator of Python": (lambda: random.Random(3), lambda m: m.kept.random(), "kept"),
    "another function": (lambda: outer, lambda m: setattr(m, "kept", counter), "kept"),
    "an attribute that is new": (lambda: 0, lambda m: setattr(m, "other", 1), "other"),
    "an attribute that goes": (lambda: 0, lambda m: vars(m).pop("kept", None), "kept"),
    "a buffer": (lambda: 0, lambda m: m.last.register_buffer("seen", torch.ones(1)), "last.seen"),
    "an attribute of a part": (lambda: 0, lambda m: setattr(m.last, "in_features", 5), "last.in_features"),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_copy_has_its_own_and_a_change_is_told_by_its_place(name: str) -> None:
    make, touch, place = KINDS[name]
    original = OriginalModule(Net(make(), touch))
    one, other = original.made(), original.made()
    watches = ModuleWatch(one, ()), ModuleWatch(other, ())
    assert original.changed(one) is original.changed(other) is None
    assert all(watch.untouched() for watch in watches)
    with torch.no_grad():
        one(X)
    assert original.changed(one) == place
    assert not watches[0].untouched()
    assert original.changed(other) is None, "the other is as it was"
    assert watches[1].untouched()
    assert original.changed(original.made()) is None
    original.look_for_leaks(one)
    assert original.refusal is None


@pytest.mark.parametrize("name", KINDS)
def test_a_node_that_trains_changes_no_other_node(name: str) -> None:
    make, touch, place = KINDS[name]
    model = FlatModel(Net(make(), touch))
    at, slope = model.flat(), torch.empty(model.dim)
    for node in (0, 1):
        with model.used_by(node), torch.no_grad():
            assert model.original is not None
            assert model.original.changed(model.bind(at, training=True)) is None, "as it was built"
        with model.used_by(node):
            model.slope(at, X, Y, slope)
    assert model.keeps == place
    assert model.own_modules["own_modules"] == 2
    with model.used_by(0):
        assert model.original.changed(model.bind(at, training=True)) == place
    model.forget(0)
    with model.used_by(0):
        assert model.original.changed(model.bind(at, training=True)) is None, "it begins anew"


def test_generators_of_a_copy_draw_as_the_original_would() -> None:
    kept = [torch.Generator().manual_seed(5), np.random.default_rng(5), random.Random(5)]
    torch.rand(3, generator=kept[0])
    ours, theirs = Net(kept, lambda m: None), copied(Net(kept, lambda m: None))
    for module in (ours, theirs):
        assert module.kept[0] is not None
    draws = [
        (float(torch.rand(1, generator=each.kept[0])), each.kept[1].random(), each.kept[2].random())  # type: ignore[index]
        for each in (ours, theirs)
    ]
    assert draws[0] == draws[1]


def test_hooks_of_a_copy_are_its_own() -> None:
    def net() -> nn.Module:
        module = Net([], lambda m: None)
        module.last.weight.register_hook(lambda slope: module.kept.append(1) or slope * 2)
        return module

    original = OriginalModule(net())
    one, other = original.made(), original.made()
    one(X).sum().backward()
    assert (original.changed(one), original.changed(other)) == ("last.weight hook module.kept", None)
    assert torch.equal(one.last.weight.grad, torch.full((2, 3), 8.0))


def test_a_change_back_is_none() -> None:
    original = OriginalModule(Net([0], lambda m: m.kept.append(m.kept.pop() + 1)))
    module = original.made()
    module(X)
    assert original.changed(module) == "kept[0]"
    module.kept[0] = 0  # type: ignore[index, operator]
    assert original.changed(module) is None


@pytest.mark.parametrize(
    ("value", "before", "equal"),
    [
        (torch.ones(2), torch.ones(2), True),
        (torch.ones(2), torch.ones(2).double(), False),
        (torch.ones(2), torch.ones(2, 1), False),
        (torch.ones(2), [1, 1], False),
        (torch.ones(2).to_sparse(), torch.ones(2).to_sparse(), False),
        (np.ones(2), np.ones(2), True),
        (np.ones(2), np.zeros(2), False),
        (np.ones(2), np.ones(2, np.float32), False),
        (np.array([np.nan]), np.array([np.nan]), True),
        (1, 1.0, False),
        (True, 1, False),
        ("a", "a", True),
    ],
)
def test_things_are_the_same_to_the_bit(value: Any, before: Any, equal: bool) -> None:
    assert same(value, before) == equal
    assert same(value, value)


def test_what_can_not_be_compared_is_another() -> None:
    class Odd:
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

        __hash__ = None  # type: ignore[assignment]

    assert not same(Odd(), Odd())
    assert told((1, 2)) == told([3, 4]) == 2
    assert told(Plain()) is Plain


def test_buffers_and_frozen_parameters_come_first_by_their_names_and_nothing_twice() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    module[0].bias.requires_grad_(False)
    module.again = module[0]  # type: ignore[assignment]
    found = list(places(module))
    names = [place for place, _ in found]
    assert names[:4] == ["1.running_mean", "1.running_var", "1.num_batches_tracked", "0.bias"]
    assert not any("weight" in name for name in names), "what is trained is no state"
    modules = [id(value) for _, value in found if isinstance(value, nn.Module)]
    assert len(modules) == len(set(modules)) == 3


# what can't be each node's own

CALLS = 0
MASKS: dict[int, Tensor] = {}
TOTAL, SEEN, TEACHER = torch.zeros(1), np.zeros(1), nn.Linear(1, 1)
HELD = Plain()


class Shared(nn.Module):
    """Keeps something where all modules of its kind have it."""

    calls = 0
    history: list[int] = []  # noqa: RUF012 - that is what is tried

    def __init__(self, how: str) -> None:
        super().__init__()
        self.last, self.how = nn.Linear(3, 2), how

    def forward(self, x: Tensor) -> Tensor:
        _keep(self.how)
        return self.last(x)  # type: ignore[no-any-return]


class Child(Shared):
    pass


def _keep(how: str) -> None:
    global CALLS, SEEN
    match how:
        case "class":
            Shared.calls += 1
        case "child":
            Child.calls += 1
        case "list of the class":
            Shared.history.append(1)
        case "global":
            CALLS += 1
        case "tensor":
            TOTAL.add_(1)
        case "array":
            SEEN += 1
        case "module":
            TEACHER.weight.data = TEACHER.weight.data + 1
        case "object":
            HELD.step()
        case "cache":
            MASKS.setdefault(1, torch.ones(1))


COMMON = {
    "class": "Shared.calls",
    "child": "Child.calls",
    "list of the class": "Shared.history",
    "global": f"{__name__}.CALLS",
    "tensor": f"{__name__}.TOTAL",
    "array": f"{__name__}.SEEN",
    "module": f"{__name__}.TEACHER.weight",
    "object": f"{__name__}.HELD.count",
}


@pytest.fixture
def put_back() -> Any:
    yield
    Shared.calls = 0
    Shared.history.clear()
    MASKS.clear()
    vars(Child).get("calls") is None or delattr(Child, "calls")


@pytest.mark.parametrize("how", COMMON)
def test_what_classes_and_globals_keep_is_refused_by_its_name(how: str, put_back: None) -> None:
    said = f"the model changes {COMMON[how]}, which it shares with the models of all other nodes: keep it in the module"
    with pytest.raises(ValueError, match=said):
        FlatModel(Child(how)).try_on(X, Y)
    model = FlatModel(Child("nothing"))
    model.try_on(X, Y)
    at = model.flat()
    model.bind(at, training=True).how = how  # type: ignore[assignment] # a change that comes later
    with pytest.raises(TrainingError, match=said), model.used_by(0):
        model.slope(at, X, Y, torch.empty(model.dim))


def test_a_global_that_is_made_once_is_no_state(put_back: None) -> None:
    model = FlatModel(Child("cache"))
    model.try_on(X, Y)
    assert MASKS
    with model.used_by(0):
        model.slope(model.flat(), X, Y, torch.empty(model.dim))


def test_state_that_can_not_be_copied_is_refused_by_its_place_and_left_alone_where_it_does_not_change() -> None:
    def net(touch: Callable[[Any], Any]) -> Net:
        return Net((number for number in range(99)), touch)

    said = "the model keeps its 'kept', which can't be copied for each node: keep tensors, numbers and containers"
    with pytest.raises(ValueError, match=said):
        FlatModel(net(lambda m: next(m.kept))).try_on(X, Y)
    FlatModel(net(lambda m: None)).try_on(X, Y)
    model = FlatModel(net(lambda m: next(m.kept)))
    with model.used_by(0):
        model.slope(model.flat(), X, Y, torch.empty(model.dim))
    with pytest.raises(TrainingError, match=said), model.used_by(1):
        pass


def test_a_module_that_refuses_to_be_copied_is_told_with_its_own_words() -> None:
    class Stuck(nn.Linear):
        def __deepcopy__(self, memo: Any) -> Any:
            raise KeyError("not me")

    with pytest.raises(ValueError, match=r"can't be copied for each node \(KeyError: 'not me'\) \(.*\.py:\d+\): let"):
        OriginalModule(Stuck(3, 2))
