"""Remarks on a run in addition to its verdict: deaths, restarts, messages given up, and events that never happened.

A death comes with the nodes that waited for the dead one, a restart with its effect on the fleet's push-sum mass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, Self, TypeAlias

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.types import Json, NodeId
from netdfl.record.forms import OPEN, Count, Nanoseconds, NodeField, read_details, read_lines
from netdfl.record.run import Run
from netdfl.record.shares import GIVEN_UP, KINDS, TAKEN_AGAIN, UNACKNOWLEDGED, ShareRecord, WeighedShare

NodeEvent: TypeAlias = tuple[float, NodeId, int, str, Mapping[str, Any]]
"""An event of a node as in the table `events`: its time in any unit, the node, round, kind and details."""


def events_of_nodes(run: Run, kinds: Sequence[str]) -> list[NodeEvent]:
    """Return the events of nodes, of these kinds, in order of time; at one instant in the order of `kinds`."""
    rows = run.rows(
        "SELECT at_s, node, round, kind, details FROM events WHERE list_contains($kinds, kind) AND node IS NOT NULL "
        "ORDER BY at_s, list_position($kinds, kind), node",
        {"kinds": kinds},
    )
    return [(*row[:4], read_details(row[4])) for row in rows]


class Death(NamedTuple):
    """An unplanned end of a node."""

    node: NodeId
    round: int
    why: str

    @classmethod
    def first_of(cls, events: Iterable[NodeEvent]) -> list[Self]:
        """Return the first unplanned end of each node among `events`, in order of time."""
        first: dict[NodeId, Self] = {}
        ends = (event for event in events if event[3] in UNPLANNED)
        for _, node, round, kind, said in sorted(ends, key=lambda event: event[:2]):
            first.setdefault(node, cls(node, round, reason_of_death(kind, said)))
        return list(first.values())


UNPLANNED = ("training_error", "died")
"""Kinds of events about unplanned ends of nodes; of two at one instant, the first in this list is the reason."""


def find_deaths(run: Run) -> list[Json]:
    """Return the nodes that died unplanned, in order of time: node, round, reason, and the nodes that waited for it.

    Deaths before the last resumption of the run do not count.
    """
    ((resumed_s,),) = run.rows("SELECT coalesce(max(at_s), -1) FROM events WHERE kind = 'resume' AND node IS NULL")
    ends = [each for each in events_of_nodes(run, UNPLANNED) if each[0] > resumed_s]
    waits = run.rows(
        "SELECT unnest(from_json(details->'awaited', '[\"INTEGER\"]')) AS awaited, node, round "
        "FROM events WHERE kind = 'missing' ORDER BY round, node"
    )
    deaths: list[Json] = []
    for node, round, why in Death.first_of(ends):
        waited: dict[NodeId, int] = {}
        for awaited, waiter, since in waits:
            if awaited == node and since >= round:
                waited.setdefault(waiter, since)
        by = [{"node": waiter, "round": since} for waiter, since in waited.items()]
        deaths.append({"node": node, "round": round, "reason": why, "waited_for_by": by})
    return deaths


def reason_of_death(kind: str, details: Mapping[str, object]) -> str:
    """Return the reason for a death from an event's details: `killed by SIGKILL`, `training error: ...`."""
    said = details.get("reason") or details.get("error")
    if kind == "training_error":
        return f"training error: {said}" if said else "training error"
    if details.get("signal"):
        return f"killed by {details['signal']}" + (f" ({said})" if said else "")
    if said:
        return str(said)
    code = details.get("exit_code")
    return "ended early" if code is None else f"exit code {code}"


RETURNS = ("absent", "crash", "died", "restart", "join", "rejoin")
"""Kinds of events about absences and returns of nodes; at one instant they happen in this order."""


def restarts_of(events: Iterable[NodeEvent], shares: ShareRecord) -> list[dict[str, Any]]:
    """Return every restart in order of time: node, times of crash and return, whether its state was kept.

    A node that joined late has the state `none`, and no time of a crash.

    If a node lost its state, `lost_weight` is the push-sum weight that the node held when it crashed (None if it was
    killed), minus those of the `shares` in it that arrived again after the crash or that their senders still keep. Once
    the node has rejoined, `rejoined_in` is its round, `model_of` the neighbor whose model it began with (None:
    nobody's, and `reason` says why), and `new_weight` the push-sum weight that it began with. Both weights are None for
    methods without weights.

    `events` are in order of time; events of one instant are in the order of `RETURNS`.
    """
    crashed: dict[NodeId, dict[str, Any]] = {}
    back: dict[NodeId, dict[str, Any]] = {}
    found: list[dict[str, Any]] = []
    for at, node, round, kind, said in events:
        if kind in ("absent", "crash"):
            crashed_s = at if kind == "crash" else None
            crashed[node] = {"round": round, "crashed_s": crashed_s, "lost_weight": said.get("weight")}
            crashed[node]["state"] = "lost" if said.get("state") == "lost" else "kept"
        elif kind == "died":  # not as scripted: nobody knows what it held
            crashed.setdefault(node, {"round": round, "crashed_s": at, "lost_weight": None})
        elif kind in ("restart", "join"):
            crash = crashed.pop(node, {"round": round, "crashed_s": None, "lost_weight": None})
            state = "none" if kind == "join" else crash.pop("state", "kept")
            back[node] = {"node": node, **crash, "state": state, "returned_s": at}
            found.append(back[node])
        elif kind == "rejoin" and node in back:
            lost = "none" if back[node]["state"] == "none" else "lost"
            back[node] |= {"state": lost, "rejoined_in": round, "model_of": said.get("source")}
            back[node] |= {"new_weight": said.get("weight"), "reason": said.get("reason", "")}
    _count_once(found, shares.twice())
    for each in found:
        if each["state"] == "kept":
            del each["lost_weight"]
    return found


def lost_states(restarts: Iterable[Json]) -> list[NodeId]:
    """Return the nodes that returned without their state and so lost its push-sum weight, known or unknown."""
    lost = {each["node"] for each in restarts if each["state"] == "lost" and each["lost_weight"] != 0}
    return sorted(lost)


class Crash(NamedTuple):
    """A scripted crash after which a node did not return.

    Attributes:
        node: the node.
        round: the round in which it crashed.
        weight: the push-sum weight that it held; None where nobody knows, and for methods without weights.
    """

    node: NodeId
    round: int
    weight: float | None

    @classmethod
    def last_of(cls, events: Iterable[NodeEvent], ended: Collection[NodeId]) -> list[Self]:
        """Return the crashes among `events`, which are in order of time, after which the node did not restart.

        Nodes that `ended` their last round are left out.
        """
        last = {node: (kind, round, said) for _, node, round, kind, said in events if kind in ("crash", "restart")}
        return [
            cls(node, round, number if isinstance(number := said.get("weight"), float | int) else None)
            for node, (kind, round, said) in sorted(last.items())
            if kind == "crash" and node not in ended
        ]


def find_crashes(run: Run) -> list[Crash]:
    """Return the scripted crashes after which nodes did not return, by node."""
    ended = run.rows(
        "SELECT node FROM metrics WHERE name = 'round_s' AND node IS NOT NULL "
        "AND round = (SELECT max(round) FROM metrics WHERE name = 'round_s')"
    )
    return Crash.last_of(events_of_nodes(run, RETURNS), {node for (node,) in ended})


def counts_the_living(run: Run) -> bool:
    """Return whether `weight_sum` of a finished run counts only living nodes, as it did in older versions of netdfl.

    The figure is part of the event log, so such a run has another hash when it is simulated again.
    """
    if not run.finished or run.result.get("weight_sum") is None or "crashed" in run.result:
        return False
    return bool(run.rows("SELECT 1 FROM events WHERE kind IN ('absent', 'crash', 'died') LIMIT 1"))


def _count_once(restarts: Sequence[dict[str, Any]], twice: Iterable[WeighedShare]) -> None:
    """Subtract from `lost_weight` of `restarts` the weights of shares that also exist outside the lost states.

    `twice` are these push-sum shares.
    """
    for (_, node, _, _), at_s, weight in twice:
        lost = [each for each in restarts if each["node"] == node and each["state"] == "lost"]
        before = [each for each in lost if each["returned_s"] <= at_s]
        held = before[-1:] or lost[:1]  # none before: the sender had ended when its receiver returned
        if held and held[0]["lost_weight"] is not None:
            held[0]["lost_weight"] -= weight


class GivenUpCounts(NamedTuple):
    """Counts of the messages that their senders gave up: they stopped repeating them though no acknowledgement came.

    Attributes:
        messages: the number of given-up messages.
        lost: how many of these are not in the state of their receiver.
        lost_weight: the push-sum weight in these lost messages; 0 for methods without weights.
    """

    messages: int
    lost: int
    lost_weight: float


def count_given_up(shares: ShareRecord) -> GivenUpCounts:
    """Count the messages whose senders gave them up, by the record of their push-sum `shares`."""
    lost = shares.lost()
    return GivenUpCounts(len(shares.all_given_up()), len(lost), sum(each.weight for each in lost))


_SHARES = (
    "SELECT kind, at_s, node, coalesce(TRY_CAST(details->>'dst' AS INTEGER), TRY_CAST(details->>'src' AS INTEGER)) "
    "AS peer, round, TRY_CAST(details->>'step' AS INTEGER) AS step, "
    "coalesce(TRY_CAST(details->>'weight' AS DOUBLE), 0) AS weight, coalesce(details->>'state', '') AS state "
    "FROM events WHERE list_contains($kinds, kind) AND node IS NOT NULL"
)
_WANTED = (
    f"WITH shares AS ({_SHARES}), wanted AS (SELECT DISTINCT if(kind = '{TAKEN_AGAIN}', peer, node) AS src, "
    f"if(kind = '{TAKEN_AGAIN}', node, peer) AS dst, round, step FROM shares) "
)
_ARRIVED = (
    "SELECT src, dst, round, step, arrived_s, sent_s FROM messages JOIN wanted USING (src, dst, round, step) "
    "WHERE kind = 'data' AND fate = 'delivered'"
)
_UNSEEN = (
    "SELECT src, dst, round, step, -1, -1 FROM wanted WHERE (src, dst, round, step) NOT IN "
    "(SELECT src, dst, round, step FROM messages WHERE kind = 'data' AND attempt = 0)"
)


def read_shares(run: Run) -> ShareRecord:
    """Read the events about messages' push-sum shares that were given up, unacknowledged, or taken again after a crash.

    Times are in seconds. In a sampled record, a message without a row of its first sending has arrived: every message
    that was not delivered has a row.
    """
    found = ShareRecord()
    for kind, at_s, node, peer, round, step, weight, state in run.rows(_SHARES, {"kinds": list(KINDS)}):
        found.add(kind, at_s, node, (peer, round, step), weight, state)
    if found.wanted:
        arrived = _ARRIVED if run.sampling.is_all else f"{_ARRIVED} UNION ALL {_UNSEEN}"
        for *share, at_s, sent_s in run.rows(_WANTED + arrived, {"kinds": [GIVEN_UP, UNACKNOWLEDGED, TAKEN_AGAIN]}):
            found.arrive(tuple(share), at_s, sent_s)
    return found


@with_config(OPEN)
class ScheduledForm(TypedDict):
    """The schema of a scheduled event in `events.jsonl`, the compiled form of the scenario's `events`."""

    action: str
    source: Count
    at_ns: NotRequired[Nanoseconds]
    at_round: NotRequired[Count]
    nodes: NotRequired[list[NodeField]]


_SCRIPTED: TypeAdapter[ScheduledForm] = TypeAdapter(ScheduledForm)


def find_unreached(run: Run) -> dict[str, object] | None:
    """Return data on scheduled events that never happened, because the run ended before; None if all happened.

    The keys are `count` (of such entries of the scenario's `events`), `first` (the earliest such compiled event, as in
    `events.jsonl`) and `ended_s`.
    """
    events: list[Any] = read_lines(run.path / "events.jsonl", _SCRIPTED)
    if not events:
        return None
    rows = run.rows(
        "SELECT node, max(round), max(at_s) FROM (SELECT node, round, at_s FROM events UNION ALL "
        "SELECT node, round, at_s FROM metrics) WHERE node IS NOT NULL GROUP BY node"
    )
    rounds = {node: round for node, round, _ in rows}
    ended_s = max((at_s for *_, at_s in rows), default=0.0)
    came = {event["source"] for event in events if _came(event, rounds, ended_s)}
    missed = [event for event in events if event["source"] not in came]
    if not missed:
        return None
    return {"count": len({event["source"] for event in missed}), "first": missed[0], "ended_s": ended_s}


def _came(event: Json, rounds: Mapping[NodeId, int], ended_s: float) -> bool:
    if "at_round" not in event:
        return bool(event["at_ns"] <= ended_s * 1e9)
    nodes: Sequence[NodeId] = event.get("nodes") or list(rounds)
    return any(rounds.get(node, -1) >= event["at_round"] for node in nodes)
