"""The scheduled link changes as texts for people; a partition is listed as one change, not link by link."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from netdfl.core.units import format_time
from netdfl.links.schedule.events import MOST, STANDING, CompiledEvent, name_change

APART = 4
"""The most changes of one schedule entry that are listed one by one; if an entry has more, they are listed as one."""


_CHANGING = ("link", "node", "core")


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A change of links for people to read, which may stand for several changes of one schedule entry.

    Attributes:
        source: the index of the schedule entry.
        entry: the entry's action, by its name in the scenario.
        where: the links, as text.
        what: the new values, as text.
        begin: when the change begins, in ns or as a round.
        end: the instant or round before which the change ends; None: it never ends.
        by_round: whether `begin` and `end` are rounds.
        times: how many changes this one stands for.
    """

    source: int
    entry: str
    where: str
    what: str
    begin: int
    end: int | None
    by_round: bool
    times: int = 1

    @property
    def when(self) -> str:
        """The change's time span as text: `20s to 30s`, `round 4 to 5`, `from 20s`."""
        if self.by_round:
            last = None if self.end is None else self.end - 1
            return f"round {self.begin}" + ("" if last == self.begin else " on" if last is None else f" to {last}")
        begin = format_time(self.begin)
        if self.end is None:
            return f"from {begin}"
        return begin if self.end == self.begin else f"{begin} to {format_time(self.end)}"

    @property
    def name(self) -> str:
        """The change as text, without values unless it is named after none: `flap 0->1`, `link 0->1: loss 5%`."""
        place = f"{self.entry} {self.where}"
        return f"{place}: {self.what}" if self.what and self.entry in _CHANGING else place

    @property
    def words(self) -> str:
        """The change as text: `partition 0..3 | 4..7: state down_drop`."""
        often = f", {self.times:,} times" if self.times > 1 else ""
        return f"{self.entry} {self.where}" + (f": {self.what}" if self.what else "") + often


def link_changes(events: Sequence[CompiledEvent]) -> list[LinkChange]:
    """Return the link changes of a compiled schedule in order; more than `APART` of one entry are listed as one."""
    found: list[LinkChange] = []
    going_on: dict[tuple[object, ...], int] = {}
    for event in events:
        if not event.acts_on_links:
            continue
        key = event.source, event.blocks, event.nodes
        if key in going_on:
            place = going_on.pop(key)
            found[place] = replace(found[place], end=event.at_ns)
        if event.action == "set":
            if event.at_ns is not None and event.cause != STANDING:
                going_on[key] = len(found)
            found.append(_change(event))
    return _gathered(found)


def _change(event: CompiledEvent) -> LinkChange:
    head = (
        event.source,
        event.entry,
        event.where,
        name_change(event.parameters),
    )
    if event.at_round is not None:
        return LinkChange(*head, event.at_round, event.until_round, by_round=True)
    return LinkChange(*head, event.at_ns or 0, None, by_round=False)


def _gathered(changes: Sequence[LinkChange]) -> list[LinkChange]:
    of_entry: dict[int, list[LinkChange]] = {}
    for change in changes:
        of_entry.setdefault(change.source, []).append(change)
    told: list[LinkChange] = []
    for group in of_entry.values():
        told += group if len(group) <= APART else [_as_one(group)]
    return sorted(told, key=lambda change: (change.by_round, change.begin, change.source))


def _as_one(group: Sequence[LinkChange]) -> LinkChange:
    ends = [change.end for change in group if change.end is not None]
    what = {change.what for change in group}
    return replace(
        group[0],
        where=gather_places([change.where for change in group]),
        what=what.pop() if len(what) == 1 else "",
        end=max(ends) if len(ends) == len(group) else None,
        times=len(group),
    )


def gather_places(places: Sequence[str]) -> str:
    """Return a text that lists the places of many changes, or their number if there are too many."""
    distinct = list(dict.fromkeys(places))
    return ", ".join(distinct) if len(distinct) <= MOST else f"{len(distinct):,} places"
