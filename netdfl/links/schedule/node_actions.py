"""Scheduled events on nodes: crash, restart, join, pause, resume, slow-down, churn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from netdfl.core.types import Json, NodeId
from netdfl.core.units import PositiveFloat, TimeNs
from netdfl.links.schedule.compiling import Compiled, Entry, check_positive
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.plans import absences_of
from netdfl.links.schedule.when import Span
from netdfl.links.selectors import NodesText

StateAfterCrash: TypeAlias = Literal["kept", "lost"]
RejoinWeight: TypeAlias = Literal[0, 1]
Rejoin: TypeAlias = Literal["catch_up", "replay"]


def crash(
    entry: Entry,
    /,
    *,
    crash: NodesText,
    restart_after: TimeNs | None = None,
    state: StateAfterCrash = "kept",
    rejoin_weight: RejoinWeight | None = None,
    rejoin: Rejoin | None = None,
) -> Compiled:
    """Kill nodes; restart them after a time, with the state of their last round end kept or lost.

    With kept state they repeat the round in which they crashed; then `rejoin: catch_up` (the default where the method
    permits it) leaves out the rounds that all others have made, and `replay` makes each of them. With lost state they
    begin with a neighbor's model; `rejoin_weight` is their push-sum weight then: 0, or 1, which adds to the fleet's
    total weight.
    """
    nodes, back = entry.nodes(crash), _return(state, rejoin_weight, rejoin)
    if restart_after is not None:
        check_positive(restart_after=restart_after)
        if any(span.end is not None or span.for_ns is not None for span in entry.when):
            raise ValueError("restart_after and for (or to) both say when it lives again; give one of them")
    yield from _on_nodes(entry, "crash", "restart", nodes, {"state": state}, back, restart_after)


def restart(
    entry: Entry,
    /,
    *,
    restart: NodesText,
    state: StateAfterCrash = "kept",
    rejoin_weight: RejoinWeight | None = None,
    rejoin: Rejoin | None = None,
) -> Compiled:
    """Restart nodes that crashed, with the state of their last round end kept or lost; see `crash`."""
    nodes, back = entry.nodes(restart), _return(state, rejoin_weight, rejoin)
    for span in _moments(entry, "restart"):
        yield CompiledEvent("restart", entry.source, at_ns=span.start, nodes=nodes, parameters=back)


def join(entry: Entry, /, *, join: NodesText) -> Compiled:
    """Let nodes join late: they are absent until then, and begin with a neighbor's model.

    With `at_round` they join when the first of the others begins that round. With push-sum each brings the weight 1,
    as every node has at the start.
    """
    nodes = entry.nodes(join)
    for span in entry.when:
        if span.end is not None or span.for_ns is not None:
            raise ValueError("a node joins at a moment and stays; give at: 20s or at_round: 30 alone, or a crash")
        joined = CompiledEvent("join", entry.source, nodes=nodes)
        yield replace(joined, at_round=span.start) if span.by_round else replace(joined, at_ns=span.start)


def _return(state: StateAfterCrash, weight: RejoinWeight | None, rejoin: Rejoin | None) -> dict[str, object]:
    """Return the parameters of a restart's event.

    Raises ValueError for a parameter that does not go with `state`: `rejoin` is for kept state, `weight` for lost
    state.
    """
    if rejoin is not None and state == "lost":
        raise ValueError("rejoin is for nodes that kept their state; with state: lost they begin where others are")
    if weight is not None and state == "kept":
        raise ValueError("rejoin_weight is for nodes that lost their state; add state: lost, or remove it")
    said = {"state": state, "rejoin": rejoin, "rejoin_weight": weight}
    return {name: value for name, value in said.items() if value is not None}


def pause(entry: Entry, /, *, pause: NodesText) -> Compiled:
    """Stop nodes like a busy machine: they neither compute nor read, and lose nothing."""
    return _on_nodes(entry, "pause", "resume", entry.nodes(pause), {}, {})


def resume(entry: Entry, /, *, resume: NodesText) -> Compiled:
    """Let paused nodes continue."""
    for span in _moments(entry, "resume"):
        yield CompiledEvent("resume", entry.source, at_ns=span.start, nodes=entry.nodes(resume))


def slow_down(entry: Entry, /, *, slow_down: NodesText, factor: PositiveFloat) -> Compiled:
    """Make the computing of nodes take `factor` times as long."""
    nodes = entry.nodes(slow_down)
    return _on_nodes(entry, "slow_down", "slow_down", nodes, {"factor": factor}, {"factor": 1.0})


def churn(
    entry: Entry,
    /,
    *,
    churn: NodesText,
    up: TimeNs | None = None,
    down: TimeNs | None = None,
    file: str | None = None,
    state: StateAfterCrash = "kept",
    rejoin_weight: RejoinWeight | None = None,
    rejoin: Rejoin | None = None,
) -> Compiled:
    """Let nodes crash and restart at random times, or by a file; they begin up.

    Random times are exponential with means `up` and `down`. A CSV `file` has a row for each absence: columns `node`,
    `leave`, `join`, times with a unit, or headed `leave_s`, `join_s`, counted from when the event begins; without a
    `join` the node stays away. See `crash` for `state`, `rejoin_weight` and `rejoin`.
    """
    back, nodes = _return(state, rejoin_weight, rejoin), entry.nodes(churn)
    absences: Iterable[tuple[NodeId, int, int | None]]
    if file is not None and up is None and down is None:
        absences = absences_of(file, entry, nodes)
    elif file is None and up is not None and down is not None:
        check_positive(up=up, down=down)
        absences = ((n, *gone) for n in nodes for gone in entry.outages((n, n), up, down))
    else:
        raise ValueError("churn goes by chance, with up: 60s and down: 10s, or by a file; give these or that")
    for each, start, end in absences:
        yield CompiledEvent("crash", entry.source, at_ns=start, nodes=(each,), parameters={"state": state})
        if end is not None:
            yield CompiledEvent("restart", entry.source, at_ns=end, nodes=(each,), parameters=back)


def _on_nodes(
    entry: Entry,
    begin: str,
    end: str,
    nodes: tuple[NodeId, ...],
    first: Json,
    last: Json,
    after_ns: int | None = None,
) -> Compiled:
    begun = CompiledEvent(begin, entry.source, nodes=nodes, parameters=first)
    ended = CompiledEvent(end, entry.source, nodes=nodes, parameters=last)
    for span in entry.when:
        if span.by_round:
            length = after_ns if after_ns is not None else span.for_ns
            yield replace(begun, at_round=span.start)
            if length is not None:
                yield replace(ended, at_round=span.start, after_ns=length)
            elif span.end is not None:
                if begin != "slow_down":
                    raise ValueError(f"{begin} for rounds would never end, as the node begins none; give for: 5s")
                yield replace(ended, at_round=span.end)
            continue
        stop = span.end if after_ns is None else span.start + after_ns
        yield replace(begun, at_ns=span.start)
        if stop is not None:
            yield replace(ended, at_ns=stop)


def _moments(entry: Entry, what: str) -> Iterator[Span]:
    for span in entry.when:
        if span.by_round or span.end is not None:
            raise ValueError(f"{what} is a moment of time; give at: 20s alone")
        yield span
