"""The bound of a proof: how many faults of each kind are permitted, and which messages may be lost or late."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from netdfl.core.errors import InputError
from netdfl.core.types import Kind

BoundedFault: TypeAlias = Literal["loss", "crash", "pause", "cut", "delay"]
"""A kind of fault: a message lost, a node crashed or paused, a directed link down, a message late."""
FAULTS: tuple[BoundedFault, ...] = get_args(BoundedFault)
MESSAGES: Mapping[Kind, int | None] = dict.fromkeys((Kind.DATA, Kind.REQUEST, Kind.REPLY, Kind.ACK, Kind.NOTICE))
"""The kinds of messages that may be lost or late by default, each up to its last round (None: any round).

Of these kinds, a run of a limited number of rounds sends a limited number of messages.
"""
UNBOUNDED = frozenset({Kind.HEARTBEAT, Kind.QUERY, Kind.STATUS, Kind.PROBE})
"""Kinds of messages that are sent for as long as a run lasts, so that their number has no limit."""
_WORDS = {"loss": ("loss", "losses"), "crash": ("crash", "crashes"), "pause": ("pause", "pauses")}
_PLURALS = _WORDS | {"cut": ("link down", "links down"), "delay": ("delay", "delays")}


@dataclass(frozen=True)
class FaultBound:
    """The bound of a proof.

    Attributes:
        most: for each kind of fault, the most faults of a schedule.
        messages: the kinds of messages that may be lost or late, each with the last round of such messages (None: any).
        orders: whether events due at one instant (messages, timers) are run in every order.
    """

    most: Mapping[BoundedFault, int]
    messages: Mapping[Kind, int | None]
    orders: bool = False

    @property
    def faults(self) -> int:
        """The largest total number of faults."""
        return sum(self.most.values())

    def reaches(self, kind: Kind, round: int) -> bool:
        """Return whether the bound permits that a message of this `kind` and `round` is lost or late."""
        last = self.messages.get(kind, -1)
        return last is None or round <= last

    def __str__(self) -> str:
        """Return the bound as text: `up to 2 losses and 1 crash; messages: data, ack`."""
        told = [f"{many} {_PLURALS[kind][many != 1]}" for kind, many in self.most.items()]
        kinds = [kind.value + ("" if last is None else f" up to round {last}") for kind, last in self.messages.items()]
        order = "; order: all" if self.orders else ""
        return f"up to {' and '.join(told) or '0 faults'}{order}; messages: {', '.join(kinds)}"


def read_bound(faults: str, messages: str = "") -> FaultBound:
    """Parse the options `loss: 2, order: all` and `data, ack, heartbeat: 3` (kinds of messages). Raises InputError."""
    most: dict[BoundedFault, int] = {}
    orders = faults != (faults := re.sub(r"(^|,)\s*order\s*:\s*all\s*(?=,|$)", "", faults))
    for name, many in _pairs(faults, "--faults"):
        kind = next((each for each in FAULTS if each == name), None)
        if kind is None:
            raise InputError(f"--faults: {name!r} is no kind of fault; use {', '.join(FAULTS)}, order: all")
        if many is None or kind in most:
            raise InputError(f"--faults: say once how many of {name} there may be, like {name}: 1")
        most[kind] = many
    return FaultBound(most, _messages(messages) if messages else MESSAGES, orders)


def _messages(text: str) -> Mapping[Kind, int | None]:
    found: dict[Kind, int | None] = {}
    for name, last in _pairs(text, "--messages"):
        if name not in (kind.value for kind in Kind):
            raise InputError(f"--messages: {name!r} is no kind of message; use {', '.join(Kind)}")
        if last is None and Kind(name) in UNBOUNDED:
            raise InputError(f"--messages: {name} has no last one; say up to which round, like {name}: 3")
        found[Kind(name)] = last
    return found


def names_in(text: str) -> list[str]:
    """Split an option's list, such as `stall, finish`, into its names."""
    return [name for name in (each.strip() for each in text.split(",")) if name]


def _pairs(text: str, option: str) -> list[tuple[str, int | None]]:
    """Return the names in the `text` of an option, each with the number after it, such as `loss: 2`, if it has one."""
    found: list[tuple[str, int | None]] = []
    for part in names_in(text):
        read = re.fullmatch(r"(\w+)(?:\s*:\s*(\d+))?", part)
        if read is None:
            raise InputError(f"{option}: {part!r} can't be read; write it like loss: 2, crash: 1")
        found.append((read[1], None if read[2] is None else int(read[2])))
    return found
