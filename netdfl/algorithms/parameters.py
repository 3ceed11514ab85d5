"""The parameters that methods share: their ranges, local SGD's in one record, and a record's flat form."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

from netdfl.core.units import Bound, NonNegativeFloat, PositiveFloat, PositiveInt
from netdfl.training.stepping.choice import PLAIN_SGD, OptimizerChoice
from netdfl.training.stepping.schedule import CONSTANT, Schedule

Decay: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Momentum: TypeAlias = Annotated[float, Bound(ge=0, lt=1)]
Radius: TypeAlias = Annotated[float, Bound(ge=0, le=1e6)]
Interpolation: TypeAlias = Annotated[float, Bound(ge=0, le=1)]
PeerChoice: TypeAlias = Literal["random", "successor"]
Between: TypeAlias = Literal["train", "gossip"]
Buffer: TypeAlias = Literal["outer_step", "round"]
Layout: TypeAlias = Literal["erk", "uniform"]
Regrow: TypeAlias = Literal["gradient", "random"]
Fraction: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Weighting: TypeAlias = Literal["uniform", "samples"]
MixOrder: TypeAlias = Literal["train_first", "mix_first"]
Optimizer: TypeAlias = Literal["sgd", "adam"]
DistilLoss: TypeAlias = Literal["normalised", "raw"]

T = TypeVar("T")
S = TypeVar("S", bound="Sgd")
FIRST = ("lr", "lr_decay", "local_epochs", "local_steps")
"""What a list of parameters begins with: how far a step goes, and how many there are."""
REPLACES = {"local_epochs": "local_steps"}
"""A parameter that, given alone, takes the place of another's default."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Local SGD as every method has it.

    Its length is that of the parameter given, `local_epochs` or `local_steps`; of both, `local_steps` counts.
    """

    lr: PositiveFloat = 0.1
    lr_decay: Decay = 1.0
    local_epochs: PositiveInt = 5
    local_steps: PositiveInt | None = None
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat | None = None
    schedule: Schedule = CONSTANT

    def within(self: S, exchange: object) -> S:
        """The same, whose schedule goes by the scenario's rounds where it names none."""
        rounds = self.schedule.rounds or getattr(exchange, "num_rounds", None)
        return replace(self, schedule=replace(self.schedule, rounds=rounds))


@dataclass(frozen=True, kw_only=True)
class AnySgd(Sgd):
    """Local SGD of a method that corrects nothing in its steps: another optimizer may make them."""

    optimizer: OptimizerChoice = PLAIN_SGD


def flat(function: Callable[..., T]) -> Callable[..., T]:
    """`function` as scenarios and callers see it: a record among its parameters is written field by field.

    `sgd: Sgd = Sgd(local_epochs=1)` becomes `lr`, `lr_decay`, `local_epochs = 1` and so on, each with its
    type. What is not given is as the record that is the parameter's default says. The parameters of `FIRST`
    come first, all others where they or their record stand. Its attribute `complete` is `replaced`, for those who
    write out all defaults.

    Raises:
        ValueError: A record and `function`, or two records, have a parameter of the same name.
    """
    signature = inspect.signature(function, eval_str=True)
    records: dict[str, Any] = {name: p.default for name, p in signature.parameters.items() if is_dataclass(p.default)}

    @wraps(function)
    def build(*context: object, **given: Any) -> T:
        for name, record in records.items():
            own = {field.name: given.pop(field.name) for field in fields(record) if field.name in given}
            given[name] = replace(record, **replaced(own))
            if context and isinstance(given[name], Sgd):
                given[name] = given[name].within(context[0])
        return function(*context, **given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        parameters += _fields(records[name]) if name in records else (parameter,)
    parameters.sort(key=lambda p: (p.kind, p.name not in FIRST))
    build.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    if {*REPLACES, *REPLACES.values()} <= {p.name for p in parameters}:
        build.complete = replaced  # type: ignore[attr-defined]
    return build


def replaced(given: Mapping[str, object]) -> dict[str, object]:
    """`given`, and None for each default that something in it replaces."""
    return {**{other: None for name, other in REPLACES.items() if given.get(name) is not None}, **given}


def _fields(record: Any) -> Iterator[inspect.Parameter]:
    types = get_type_hints(type(record), include_extras=True)
    for field in fields(record):
        default, annotation = getattr(record, field.name), types[field.name]
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
