"""The phrases of a diagnosis's sentences. Each docstring shows examples of what the function returns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from netdfl.core.clock import NS_PER_S
from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.snapshot import WaitKind, WaitNow

MOST_NAMES = 8


def listed(items: Iterable[object], last: str = "and", most: int = MOST_NAMES) -> str:
    """Return a list as text: `4`, `4 and 5`, `4, 5 and 6`, `0, 1, 2 and 40 more`."""
    words = [str(item) for item in items]
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} more"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def nodes(ids: Collection[NodeId]) -> str:
    """Return node ids as text: `node 4`, `nodes 4 and 5`."""
    return f"node{'s' if len(ids) > 1 else ''} {listed(sorted(ids))}"


def seconds(ns: int) -> str:
    """Return a duration as text: `1.25 s`."""
    return f"{ns / NS_PER_S:.4g} s"


def rounds(numbers: Collection[int]) -> str:
    """Return round numbers as text: `round 3`, `rounds 3 to 5`."""
    low, high = min(numbers), max(numbers)
    return f"round {low}" if low == high else f"rounds {low} to {high}"


def behind(waiters: Sequence[NodeId], roots: Sequence[NodeId]) -> str:
    """Return `; 4, 5 and 6 wait behind it`, or `them` if there are several roots; an empty text without waiters."""
    if not waiters:
        return ""
    return f"; {listed(waiters)} wait{'s' if len(waiters) == 1 else ''} behind {'it' if len(roots) == 1 else 'them'}"


def for_whom(wait: WaitNow) -> str:
    """Return, as text, the nodes whose messages a waiting node lacks: `1`, `1 or 2`, `1 and 2`, `2 of 1, 2 and 5`."""
    return lacking(sorted(wait.awaited), wait.short, room=wait.what is WaitKind.ROOM)


def lacking(sources: Sequence[NodeId], short: int, *, room: bool) -> str:
    """Return the nodes whose messages are lacking: `1 and 2`, or `2 of 1, 2 and 5` if `short` of them suffice.

    `room`: room in their mailboxes is lacking instead.
    """
    if room:
        return f"room at {listed(sources)}"
    if short >= len(sources):
        return listed(sources)
    return listed(sources, "or") if short == 1 else f"{short} of {listed(sources)}"


def arrows(edges: Iterable[Edge]) -> str:
    """Return edges as text: `2->3 and 3->2`."""
    return listed(f"{src}->{dst}" for src, dst in edges)


def entry(events: Collection[int | None]) -> str:
    """Return ` (events[2])` if all of `events` are the same entry of the scenario, else an empty text."""
    known = {event for event in events if event is not None}
    return f" (events[{min(known)}])" if len(known) == len(events) == 1 else ""


def core_links(names: Collection[str], *, past: bool = False) -> str:
    """Return `the core link a--b is` or `the core links a--b and b--c are` (`past`: `was`, `were`).

    An empty text if a name is empty.
    """
    known = sorted(set(names))
    if "" in known:
        return ""
    many = len(known) > 1
    verb = ("were" if many else "was") if past else ("are" if many else "is")
    return f"the core link{'s' * many} {listed(known)} {verb}"


def until(ends_ns: Sequence[int | None], never: str = "for good") -> str:
    """Return the end of outages as text: `until 20 s`, or the text `never` if one of them has no end."""
    known = [ns for ns in ends_ns if ns is not None]
    return f"until {seconds(max(known))}" if len(known) == len(ends_ns) else never


def back(ends_ns: Sequence[int | None], *, many: bool, hoped: bool) -> str:
    """Return a phrase about the return of one node or `many`: `returns at 12 s`, `does not return`.

    `hoped`: whether the return is uncertain: `may return until 12 s`.
    """
    known = [ns for ns in ends_ns if ns is not None]
    if len(known) < len(ends_ns):
        return f"{'do' if many else 'does'} not return"
    if hoped:
        return f"may return until {seconds(max(known))}"
    return f"return{'' if many else 's'} at {seconds(max(known))}"


def joins(at_ns: Sequence[int | None], in_rounds: Sequence[int | None], *, many: bool) -> str:
    """Return a phrase about one node or `many` that join the fleet late: `joins at 20 s`, `joins in round 5`."""
    known = [ns for ns in at_ns if ns is not None]
    by_round = [round for ns, round in zip(at_ns, in_rounds, strict=True) if ns is None and round is not None]
    when = ([f"at {seconds(max(known))}"] if known else []) + ([f"in {rounds(by_round)}"] if by_round else [])
    if not when:
        return f"{'have' if many else 'has'} not joined"
    return f"join{'' if many else 's'} {listed(when)}"


def span(ids: Collection[NodeId]) -> str:
    """Return node ids as text, three or more consecutive ones as a range: `node 4`, `nodes 0 to 3 and 6`."""
    rows = groupby(enumerate(sorted(ids)), lambda each: each[1] - each[0])  # in a row, both go up by one
    runs = [[node for _, node in row] for _, row in rows]
    parts: list[object] = [part for run in runs for part in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else run)]
    return f"node{'s' if len(ids) > 1 else ''} {listed(parts)}"
