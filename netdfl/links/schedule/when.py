"""The times of scheduled events: spans of time, or of rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.core.units import NonNegativeInt, PositiveInt, TimeNs, format_time
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.selectors import Block, Groups

_MOST = 100_000


class CoreNames(Protocol):
    """The interface that finds the core links of an underlay by their names."""

    def crossing(self, text: str) -> tuple[Block, ...]:
        """Return the links of nodes that cross the core link `text`. Raises ValueError for an unknown name."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a fleet that its schedule needs.

    `end_ns` and `rounds` are None for a run without such an end; `core` is None without an underlay. `says` returns
    whether the scenario gives the rule of this name to any link or node that an event concerns; it may not know.
    """

    num_nodes: int
    streams: Streams
    groups: Groups = field(default_factory=dict[str, list[NodeId]])
    end_ns: int | None = None
    rounds: int | None = None
    core: CoreNames | None = None
    says: Callable[[CompiledEvent, str], bool] = lambda event, key: True


@dataclass(frozen=True, slots=True)
class Span:
    """A span from `start` to before `end` (None: no end), in nanoseconds, or in rounds if `by_round`.

    `for_ns` is the length in ns of a span that begins when a node begins a round and lasts for a time.
    """

    start: int
    end: int | None = None
    by_round: bool = False
    for_ns: int | None = None

    def overlaps(self, other: Span) -> bool:
        """Return whether both spans have a moment, or a round, in common."""
        return (
            self.by_round == other.by_round
            and (other.end is None or self.start < other.end)
            and (self.end is None or other.start < self.end)
        )


def spans(
    facts: Facts,
    /,
    *,
    at: TimeNs | None = None,
    from_: TimeNs | None = None,
    to: TimeNs | None = None,
    for_: TimeNs | None = None,
    every: TimeNs | None = None,
    at_round: NonNegativeInt | None = None,
    to_round: PositiveInt | None = None,
    for_rounds: PositiveInt | None = None,
    every_rounds: PositiveInt | None = None,
    count: PositiveInt | None = None,
) -> list[Span]:
    """Return the spans of a scenario event: in ns since the fleet's start, or in rounds.

    A round is the round of a message on the links concerned, or the round of the node concerned. `facts` gives the
    end of the run, before which every span must begin.

    `at` (or `from`) begins a span; `for` or `to` ends it; without these it lasts to the end of the run. `every` repeats
    it `count` times, or until `to`, or the end of the run. `at_round`, `for_rounds`, `to_round` and `every_rounds` are
    the same in rounds; with `at_round`, `for` is a time after a node's round began.
    """
    if at_round is not None:
        _refuse(at=at, from_=from_, to=to, every=every)
        found = _repeat(at_round, to_round, for_rounds, every_rounds, count, facts.rounds, "rounds")
        return [replace(each, by_round=True, for_ns=for_) for each in found]
    _refuse(to_round=to_round, for_rounds=for_rounds, every_rounds=every_rounds)
    if at is not None and from_ is not None:
        raise ValueError("at and from both say when it begins; give one of them")
    start = at if at is not None else from_
    if start is None:
        if every is None:
            raise ValueError("it does not say when; give at: 20s, from: 20s, every: 60s, or at_round: 30")
        start = every
    return _repeat(start, to, for_, every, count, facts.end_ns, "time")


def _refuse(**given: int | None) -> None:
    for name, value in given.items():
        if value is not None:
            key = name.rstrip("_")
            raise ValueError(f"{key} mixes time and rounds; give at, for, to, every, or at_round, for_rounds, to_round")


def _repeat(
    first: int, to: int | None, length: int | None, every: int | None, count: int | None, end: int | None, what: str
) -> list[Span]:
    def shown(value: int) -> str:
        return format_time(value) if what == "time" else f"round {value}"

    for name, value in (("the beginning", first), ("for", length), ("every", every), ("to", to)):
        if value is not None and (value < 0 or (value == 0 and name in ("for", "every"))):
            raise ValueError(f"{name} = {shown(value)} is not ahead; expected a positive time like 20s")
    if to is not None and to <= first:
        raise ValueError(f"it would heal before it breaks: to = {shown(to)} is not after {shown(first)}; exchange them")
    if end is not None and first >= end:
        last = format_time(end) if what == "time" else f"{end} rounds"
        raise ValueError(f"it begins after the end of the run ({last}); bring it forward, or run longer")
    if every is None:
        if count is not None:
            raise ValueError("count says how often, but not how far apart; add every: 60s")
        if to is not None and length is not None:
            raise ValueError("for and to both say when it ends; give one of them")
        return [Span(first, to if length is None else first + length)]
    if length is not None and length > every:
        raise ValueError("it would begin again before it ended: for is longer than every; make for shorter")
    stop = min((limit for limit in (to, end if count is None else None) if limit is not None), default=None)
    if stop is None and count is None:
        raise ValueError("it would repeat for ever; add count or to, or give the run an end")
    starts = range(first, stop if stop is not None else 1 << 62, every)
    chosen = list(islice(starts, count if count is not None else _MOST + 1))
    if end is not None and chosen[-1] >= end:
        raise ValueError(f"it would begin {len(chosen)} times, the last after the end of the run; make count smaller")
    if len(chosen) > _MOST:
        raise ValueError(f"it repeats more than {_MOST} times; make every longer")
    return [Span(start, None if length is None else start + length) for start in chosen]


KEYS: Mapping[str, str] = {
    name: name.rstrip("_")
    for name in ("at", "from_", "to", "for_", "every", "at_round", "to_round", "for_rounds", "every_rounds", "count")
}
"""The parameters of `spans`, with their names in a scenario."""


def split(entry: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Split `entry` into its keys about time, the parameters of `spans`, and all other keys."""
    names = {written: name for name, written in KEYS.items()}
    when = {names[key]: value for key, value in entry.items() if key in names}
    return when, {key: value for key, value in entry.items() if key not in names}
