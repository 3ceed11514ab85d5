"""A naive enumeration of schedules, written without netdfl's: it plays each prefix from the start by an executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from netdfl.core.errors import InputError
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.scenario.load import load

FLEET: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "fleet",
    "nodes": 3,
    "rounds": 3,
    "world": {"kind": "simulated", "compute": "10ms"},
    "task": {"kind": "consensus", "dim": 1},
    "algorithm": "dpsgd",
    "topology": "ring",
    "wait": {"deadline": "20ms"},
    "links": {"default": {"latency": "5ms"}},
    "evaluation": {"local": "none"},
}
"""A ring that no number of losses stalls."""
PAIR = {**FLEET, "nodes": 2, "rounds": 2, "topology": "full"}
KINDS = ("data", "request", "reply", "ack", "notice")


class Listed(NamedTuple):
    """A fault with its place in the order of a play: time, whether it is of a node, and a name."""

    at_ns: int
    of_message: bool
    name: tuple[Any, ...]
    kind: str
    event: dict[str, Any]


def listed(run: ExploredRun, round_ns: int, ways: list[dict[str, str]]) -> Iterator[Listed]:
    """All that can fail in a run: each message, and each node before each instant at which it talks or hears."""
    messages = [m for m in run.rows.messages if m.kind.value in KINDS]
    seen: dict[Any, int] = {}
    for m in sorted(messages, key=lambda m: m.sent_ns):
        name = (m.src, m.dst, m.kind.value, m.epoch, m.round, m.step, m.attempt)
        number = seen[name] = seen.get(name, -1) + 1
        whole = {"kind": name[2], "incarnation": m.epoch, "step": m.step, "attempt": m.attempt, "number": number}
        yield Listed(
            m.sent_ns, True, (*name, number), "loss", {"at_round": m.round, "drop": f"{m.src}->{m.dst}", **whole}
        )
    for node in {m.src for m in messages} | {m.dst for m in messages}:
        times = {m.sent_ns for m in messages if m.src == node}
        times |= {m.arrived_ns for m in messages if m.dst == node and m.arrived_ns is not None}
        for at_ns in sorted(times | {max(times, default=-1) + 1}) if times else ():
            for way in ways:
                event = {"at": f"{at_ns}ns", "crash": node, **way}
                yield Listed(at_ns, False, (node, str(way)), "crash", event)


def count(plain: Mapping[str, Any], most: Mapping[str, int]) -> int:
    """The number of all schedules of at most `most` faults of each kind, the one without any included."""
    executor = Executor()
    first = executor.run(load(dict(plain)))
    round_ns = first.length_ns // plain["rounds"]
    back = f"{round_ns}ns"
    ways = [{}, {"restart_after": back}, {"restart_after": back, "state": "lost"}]

    def below(events: list[dict[str, Any]], last: Any, left: Mapping[str, int]) -> int:
        try:
            run = executor.run(load({**plain, "events": events}))
        except InputError:
            return 0
        found = 1
        for each in listed(run, round_ns, ways):
            if left.get(each.kind, 0) and (last is None or each[:3] > last[:3]):
                found += below([*events, each.event], each, {**left, each.kind: left[each.kind] - 1})
        return found

    return below([], None, most)
