"""Which entries of a scenario's `events` lost, held or cut off something, read from the entries as they are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from netdfl.core.types import Edge
from netdfl.core.units import parse_time_ns
from netdfl.explore.rows import MessageRow
from netdfl.scenario.model.schema import Scenario

_LOSSES = {"loss": "loss", "down": "state", "reset": "state"}
_DOWN = ("down_drop", "down_hold", "down_reset")


class Rules:
    """The entries of a scenario, and the rules of its links (None in place of an entry)."""

    def __init__(self, scenario: Scenario, ended_ns: int) -> None:
        """Of a run that ended at `ended_ns`."""
        self.ended_ns = ended_ns
        self.events = list(enumerate(scenario.events))
        self.links = {key: entry.written() for key, entry in scenario.links.items() if key != "default"}

    def losers(self, message: MessageRow) -> frozenset[int | None]:
        """Those that may have lost it."""
        return frozenset(self._losers(message, message.fate.partition(":")[2]))

    def _losers(self, message: MessageRow, reason: str) -> Iterator[int | None]:
        edge = message.src, message.dst
        if reason == "scripted":
            yield from (i for i, event in self.events if "drop" in event and _names(event, message))
        key = _LOSSES.get(reason, "")
        for index, event in self.events:
            value = event.get(key, event.get("mode", "down_drop") if "partition" in event and key == "state" else None)
            if value is not None and _acts_on(event, edge) and _holds(event, message):
                yield index
        if key == "loss" and "loss" in self.links.get(f"{edge[0]}->{edge[1]}", {}):
            yield None

    def are_by_chance(self, message: MessageRow) -> bool:
        """Whether one of the rules that may have lost it loses some messages, and not all."""
        events = dict(self.events)
        edge = f"{message.src}->{message.dst}"
        losses = [events[i].get("loss") for i in self.losers(message) if i is not None]
        losses += [each.get("loss") for key, each in self.links.items() if key == edge]
        return any("0.5" in str(loss) for loss in losses)

    def blocks(self, edge: Edge) -> frozenset[int | None]:
        """Those by which nothing passes a link at the end, and for good."""
        return frozenset(self._blocks(edge))

    def _blocks(self, edge: Edge) -> Iterator[int | None]:
        for index, event in self.events:
            state = event.get("state") if "link" in event else event.get("mode") if "partition" in event else None
            if state in _DOWN and "at" in event and "for" not in event and _acts_on(event, edge):
                if parse_time_ns(event["at"]) <= self.ended_ns:
                    yield index


def _acts_on(event: Mapping[str, Any], edge: Edge) -> bool:
    if "link" in event:
        return bool(event["link"] == f"{edge[0]}->{edge[1]}")
    if "partition" not in event:
        return False
    first, second = ({int(node) for node in side} for side in event["partition"])
    return (edge[0] in first and edge[1] in second) or (
        not event.get("one_way") and edge[0] in second and edge[1] in first
    )


def _holds(event: Mapping[str, Any], message: MessageRow) -> bool:
    """Whether the entry acts on messages of that round, or did while it was under way."""
    if "at_round" in event:
        first = event["at_round"]
        return bool(first <= message.round < first + event.get("for_rounds", 10**6))
    begin = parse_time_ns(event["at"])
    end = begin + parse_time_ns(event["for"]) if "for" in event else None
    return end is None or message.sent_ns < end


def _names(event: Mapping[str, Any], message: MessageRow) -> bool:
    if event["drop"] != f"{message.src}->{message.dst}" or not _holds({**event, "for_rounds": 1}, message):
        return False
    return event.get("kind", message.kind) == message.kind and event.get("attempt", message.attempt) == message.attempt
