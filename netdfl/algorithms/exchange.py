"""What every catalog function is given: how a scenario wants messages exchanged, and the parameters that methods share.

What a node waits for is part of it: whom, how many of them, until when. Where deadlocks come from. Parameters have
their ranges; those of local SGD are one record, which a scenario writes in flat form.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, get_type_hints

from netdfl.core.rng import Streams
from netdfl.core.types import OnMissing
from netdfl.core.units import Bound, NonNegativeFloat, PositiveFloat, PositiveInt
from netdfl.training.stepping import CONSTANT, PLAIN_SGD, OptimizerChoice, Schedule

if TYPE_CHECKING:
    from netdfl.compression.base import Compressor


AUTO: Literal["auto"] = "auto"
OnNotFinite: TypeAlias = Literal["refuse", "count", "pass"]
"""What becomes of a message with NaN or infinity in it: treated as missing, mixed and counted, or mixed unseen."""


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """Wait for `need` of the awaited nodes, at most until the deadline.

    `need` is `all`, `any`, a number (a quorum), or `none` (take what is there and go on). The
    deadline is in nanoseconds from the start of the wait; `auto` asks those that are late whether they will
    still send, and waits for no other; None never ends the wait. `stale` is how many rounds old a neighbor's
    vector may be and still be mixed by plain gossip, where it is the newest that is known; 0: this round's alone.
    A push-sum share is mass, and mixed at any age. `announce` says that, where receivers can't know who will
    send, a node tells those that it sends nothing to, so that `all` means something. `patience` multiplies the
    automatic deadline, and how long one that is asked may say nothing, for a wait that contains those of others.
    `resent` says that what is lost is sent again, so that it is worth waiting for. `ordered` says that links
    keep order, so that a message for a later step tells that the awaited one is lost. `on_not_finite` says
    what becomes of messages that came with NaN or infinity in them. `essential` says that without these nodes there
    is no round: they are waited for even where the failure detector calls them gone. `cumulative` says that a message
    holds all that its sender sent before, so that a later one ends the wait for one that was lost.
    """

    need: Literal["all", "any", "none"] | int = "all"
    deadline_ns: int | Literal["auto"] | None = AUTO
    stale: int = 0
    announce: bool = False
    patience: int = 1
    resent: bool = False
    ordered: bool = True
    on_not_finite: OnNotFinite = "refuse"
    essential: bool = False
    cumulative: bool = False

    def count(self, num_sources: int) -> int:
        """How many of `num_sources` nodes suffice."""
        if self.need == "all":
            return num_sources
        if self.need == "any":
            return min(1, num_sources)
        return 0 if self.need == "none" else min(self.need, num_sources)


Delivery = Literal["plain", "acknowledged", "running_sums"]
ExtrasTravel = Literal["exact", "compressed"]
Scheme = Literal["auto", "choco", "deepsqueeze", "edge", "push_sum", "plain", "ef14", "ef21", "unsafe"]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The wait, what to do about a neighbor that did not arrive, and the compression of messages.

    `delivery` is what becomes of a message that is lost: nothing, or it is sent again until it is
    answered, or push-sum sends running sums that make up for it. `extras` says how what a method reports to
    its server beside the model travels. `common_start` says that all nodes
    start from the same parameters, `num_rounds` how many rounds there are. `streams` is where compressors draw from.
    """

    wait: WaitPolicy = field(default_factory=WaitPolicy)
    on_missing: OnMissing = "self"
    delivery: Delivery = "plain"
    compressor: Compressor | None = None
    scheme: Scheme = "auto"
    gamma: float | Literal["auto"] = "auto"
    extras: ExtrasTravel = "exact"
    common_start: bool = False
    num_rounds: int | None = None
    streams: Streams = field(default_factory=lambda: Streams(0))


Decay: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Momentum: TypeAlias = Annotated[float, Bound(ge=0, lt=1)]
Radius: TypeAlias = Annotated[float, Bound(ge=0, le=1e6)]
Interpolation: TypeAlias = Annotated[float, Bound(ge=0, le=1)]
Fraction: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Weighting: TypeAlias = Literal["uniform", "samples"]

T = TypeVar("T")
S = TypeVar("S", bound="Sgd")
FIRST = ("lr", "lr_decay", "local_epochs", "local_steps")
"""What a list of parameters begins with: how far a step goes, and how many there are."""
REPLACES = {"local_epochs": "local_steps"}
"""A parameter that, given alone, takes the place of another's default."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Local SGD as every method has it.

    Its length is that of the parameter given, `local_epochs` or `local_steps`; of both, `local_steps` counts
    (a scenario gives one of them).
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
    for each in fields(record):
        default, annotation = getattr(record, each.name), types[each.name]
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
