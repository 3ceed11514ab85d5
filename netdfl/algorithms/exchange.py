"""The first argument of every catalog function, which describes a scenario's exchange of messages; shared parameters.

Part of the exchange is the wait policy: the nodes that a node waits for, how many of them, and until when. Wrong
policies cause deadlocks. The types of parameters contain their ranges. The parameters of local SGD are one record,
whose fields a scenario writes beside the method's own.

Relies on: nothing but types: a policy is data. `node/waits.py` carries it out, and a diagnosis reads it.

Why: The loop of an algorithm says that it waits, and its policy says for whom. So the scenario decides whether a loop
is synchronous, waits for a quorum or is asynchronous, and each wait is an edge of the wait-for graph of a known type
(all, any, k of n).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
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
"""The treatment of a message with NaN or infinity: `refuse` treats it as missing, `count` mixes and counts it, `pass`
mixes it unchecked.
"""


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """The policy of a node's wait for messages: it ends when `need` messages are here, or at the deadline.

    Attributes:
        need: `all`, `any`, a number (a quorum), or `none` (take the messages at hand without waiting).
        deadline_ns: Nanoseconds from the start of the wait. `auto` asks late nodes whether they will still send, and
            then waits only for nodes that will; None never ends the wait.
        stale: The largest age in rounds of a neighbor's newest known vector that plain gossip still mixes; 0: only
            this round's vectors. A push-sum share is added at any age, because its weight would be lost otherwise.
        announce: Where receivers can't know their senders, a node tells every node to which it does not send that no
            message comes; otherwise `all` would have no meaning.
        patience: A factor on the automatic deadline, and on the time that an asked node may stay silent, for a wait
            that contains the waits of others.
        resent: Lost messages are sent again, so they are worth waiting for.
        ordered: Links keep order, so a message for a later step proves that the awaited one is lost.
        on_not_finite: The treatment of messages with NaN or infinity.
        essential: The awaited nodes are necessary for the round: the wait continues even if the failure detector
            reports them as gone.
        cumulative: A message contains all earlier ones of its sender, so a later one ends the wait for a lost one.
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
        """Return the number of messages, out of `num_sources` awaited ones, that end the wait."""
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
    """The exchange of messages in a scenario.

    Attributes:
        wait: the wait policy.
        on_missing: the treatment of neighbors whose message did not come.
        delivery: the treatment of a lost message: none; or it is sent again until it is acknowledged; or push-sum
            sends running sums that make up for it.
        compressor: the compressor of messages; None: they are not compressed.
        scheme: the way in which messages are compressed.
        gamma: the step size of compressed gossip; `auto`: netdfl chooses it.
        extras: the encoding of vectors that a client sends to the server beside its model.
        common_start: whether all nodes start from the same parameters.
        num_rounds: the number of rounds; None: unknown.
        streams: the random streams of compressors.
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
"""The parameters that a table of an algorithm's parameters shows first: a step's length, and the number of steps."""
REPLACES = {"local_epochs": "local_steps"}
"""Parameters that, if given, cancel the default of another one: {given parameter: parameter that becomes None}."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A set of parameters that several algorithms share; a scenario writes its fields directly."""


@dataclass(frozen=True, kw_only=True)
class Sgd(Parameters):
    """The parameters of local SGD in every method.

    A scenario gives `local_epochs` or `local_steps` to set the length of local training. If both are set, `local_steps`
    counts.
    """

    lr: PositiveFloat = 0.1
    lr_decay: Decay = 1.0
    local_epochs: PositiveInt = 5
    local_steps: PositiveInt | None = None
    weight_decay: NonNegativeFloat = 0.0
    clip_norm: PositiveFloat | None = None
    schedule: Schedule = CONSTANT

    def within(self: S, exchange: object) -> S:
        """Return a copy whose learning-rate schedule spans the scenario's rounds, unless the schedule has `rounds`."""
        rounds = self.schedule.rounds or getattr(exchange, "num_rounds", None)
        return replace(self, schedule=replace(self.schedule, rounds=rounds))


@dataclass(frozen=True, kw_only=True)
class AnySgd(Sgd):
    """The parameters of local SGD for methods in which another optimizer may replace plain SGD."""

    optimizer: OptimizerChoice = PLAIN_SGD


def flat(function: Callable[..., T]) -> Callable[..., T]:
    """Return `function` with the fields of each `Parameters` argument as separate keyword parameters.

    `sgd: Sgd = Sgd(local_epochs=1)` becomes `lr`, `lr_decay`, `local_epochs = 1` and so on, each with its type. Fields
    that are not given have the values of the record that is the parameter's default. The parameters of `FIRST` come
    first, all others in the place of their record. The attribute `complete` of the result is the function `replaced`,
    for code that writes out all defaults. A function without such a record is returned unchanged.

    Raises:
        ValueError: A record and `function`, or two records, have a parameter of the same name.
    """
    records: dict[str, Any] = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, Parameters)
    }
    if not records:
        return function
    signature = inspect.signature(function, eval_str=True)

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
    """Return the given parameters, with None for each default that another given parameter replaces."""
    return {**{other: None for name, other in REPLACES.items() if given.get(name) is not None}, **given}


def _fields(record: Any) -> Iterator[inspect.Parameter]:
    types = get_type_hints(type(record), include_extras=True)
    for each in fields(record):
        default, annotation = getattr(record, each.name), types[each.name]
        yield inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
