"""The use of a run's time: its critical path in numbers and in a sentence, and the length of its rounds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median

from netdfl.core.fates import Fate, FateClass
from netdfl.core.types import NodeId
from netdfl.record.bottleneck import Bottleneck, PathMessage, SharedRates, find_bottleneck
from netdfl.record.critical_path import Leg, Standstill, TimeUse, critical_path
from netdfl.record.forms import read_nodes
from netdfl.record.history import EndedRound, History, LagReason, NodeOutage, TimedWait, read_outages, read_stops
from netdfl.record.run import Run

LEAST_SHARE = 0.005
"""Uses of the run's time below this share of it are listed in `result.json`, but not named in the sentence about it."""
MOST_NODES = 2
MOST_PARTS = 4


@dataclass
class NodeLag:
    """The time that the fleet spent waiting for one node.

    Attributes:
        node: the node.
        seconds: the time for which the critical path waits for the node.
        by_deadline_s: the part of these seconds in waits that a deadline ended.
        rounds: the most rounds by which the node was behind.
        times: the largest factor by which its training took longer than usual.
        why: the reason for most of the seconds.
    """

    node: NodeId
    seconds: float = 0.0
    by_deadline_s: float = 0.0
    rounds: int = 0
    times: float = 1.0
    why: LagReason = LagReason.UNKNOWN
    _of: dict[LagReason, float] = field(default_factory=dict)

    def add(self, leg: Leg) -> None:
        """Add a part of the path that waited for this node; the reason with the most seconds becomes its reason."""
        self.seconds += leg.seconds
        self.by_deadline_s += leg.seconds if leg.by_deadline else 0.0
        self.rounds, self.times = max(self.rounds, leg.rounds), max(self.times, leg.times)
        self._of[leg.why] = self._of.get(leg.why, 0.0) + leg.seconds
        self.why = max(self._of, key=lambda why: self._of[why])

    def to_json(self) -> dict[str, object]:
        """Return the node's entry under `time.behind` in `result.json`."""
        return {name: value for name, value in asdict(self).items() if name != "_of"}

    def words(self) -> str:
        """Return a phrase for people: `290 s waiting for node 3, which had crashed and was up to 9 rounds behind`."""
        if self.why is LagReason.BUSY:
            which = "had to wait for a processor: its machine was busy"
        elif self.why is LagReason.SLOW:
            which = f"took up to {self.times:.3g} times as long to compute as the median node"
        elif self.rounds > 1 and self.why in _OUT:
            which = f"{_OUT[self.why]} and was up to {self.rounds} rounds behind"
        else:
            which = f"was up to {self.rounds} rounds behind" if self.rounds > 1 else _WHY[self.why]
        limit = f" ({seconds(self.by_deadline_s)} of it until deadlines)" if self.by_deadline_s else ""
        return f"{seconds(self.seconds)} waiting for node {self.node}, which {which}{limit}"


_OUTAGES = {"absent": LagReason.ABSENT, "pause": LagReason.PAUSE}
_OUT: Mapping[LagReason, str] = {
    LagReason.ABSENT: "joined late",
    LagReason.CRASH: "had crashed",
    LagReason.PAUSE: "was paused",
    LagReason.STOPPED: "did not run for a while",
    LagReason.SILENT: "answered no more",
    LagReason.GONE: "was believed to be gone",
}
_WHY: Mapping[LagReason, str] = {
    LagReason.ABSENT: "had not joined yet",
    LagReason.CRASH: "had crashed",
    LagReason.PAUSE: "was paused",
    LagReason.STOPPED: "did not run: its process was stopped, or its machine busy",
    LagReason.SILENT: "answered no more: its process stood still, or its event loop was blocked",
    LagReason.GONE: "was believed to be gone",
    LagReason.SENT_NOTHING: "believed that the nodes that waited were gone, and sent them nothing",
    LagReason.UNKNOWN: "was behind",
}


NOTHING = "none: the scenario has neither compute time nor delays"


def seconds(value: float) -> str:
    """Return a duration as text: `32 ms`, `4.21 s`, `16 min 41 s`, `2 h 41 min`."""
    if value < 0.9995:  # above, three digits of milliseconds would be 1e+03
        return f"{value * 1e3:.3g} ms"
    if value < 1000:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"


def find_time_spent(
    run: Run,
    total_s: float,
    shared_rates: SharedRates | None = None,
    stalls: Sequence[Mapping[str, object]] = (),
) -> dict[str, object] | None:
    """Return the use of the `total_s` seconds of `run` as in `result.json`.

    None if no round ended, unless the run ended in a stall.

    These parts of the critical path add up to `total_s`: `compute_s`, `links_s` (delay, queues), `resending_s` (until a
    lost message was sent again), `deadlines_s`, `lost_s` (until a later message revealed a loss), `skipped_s` (until
    `wait.on_stall: skip` ended a stall), `behind_s` (waiting for nodes that were behind), `rest_s` (anything else) and
    `end_s` (after the last action of any node). `text` sums them up in a sentence, and `links_parted_s` is the part of
    `links_s` during partitions. `behind` lists the nodes that were behind. `rounds` holds, for each round, its median
    length over the nodes, its longest, and its deadline (None: none).

    In a sampled record the message that ended a wait may have no row: then all parts are 0 and the sentence says so.
    With `shared_rates`, `bottleneck` has the shared link over which most of the path's time went, its seconds, and the
    number of links that share it; `text` names it, too. In a run that ended in one of `stalls`, as in `result.json`,
    nobody who waits in it is called behind.
    """
    history, deadlines = read_history(run)
    rounds = _rounds(history, deadlines)
    standstill = Standstill.of(stalls)
    if not any(length is not None for length in rounds["median_s"]) and not standstill.waiting:
        return None
    path = critical_path(history, total_s, standstill) if run.sampling.is_all else []
    spent = {cause: math.fsum(leg.seconds for leg in path if leg.cause is cause) for cause in TimeUse}
    behind: dict[NodeId, NodeLag] = {}
    for leg in path:
        if leg.cause is TimeUse.BEHIND:
            behind.setdefault(leg.nodes[0], NodeLag(leg.nodes[0])).add(leg)
    parted_s = _parted(run, path)
    nodes = sorted(behind.values(), key=lambda each: (-each.seconds, each.node))
    narrow = None if shared_rates is None else _bottleneck(run, path, shared_rates)
    untold = f"{seconds(total_s)}; not told what for: {run.sampling.words}"
    return {
        "text": _sentence(total_s, spent, nodes, path, parted_s) + _over(narrow, total_s)
        if run.sampling.is_all
        else untold,
        "total_s": total_s,
        **{f"{cause}_s": value for cause, value in spent.items()},
        "links_parted_s": parted_s,
        "behind": [each.to_json() for each in nodes],
        "rounds": rounds,
        **({} if narrow is None else {"bottleneck": narrow._asdict()}),
    }


def _bottleneck(run: Run, path: Sequence[Leg], shared_rates: SharedRates) -> Bottleneck | None:
    messages = (
        PathMessage((leg.nodes[0], leg.nodes[1]), leg.begin, leg.seconds)
        for leg in path
        if leg.cause is TimeUse.LINKS and len(leg.nodes) == 2
    )
    return find_bottleneck(messages, run.rows(_ARRIVED), shared_rates)


def _over(narrow: Bottleneck | None, total_s: float) -> str:
    """Return `; 62 % of the time went over paris->zurich, shared by 14 links`, or nothing if the share is small."""
    if narrow is None or narrow.seconds <= LEAST_SHARE * total_s:
        return ""
    shared = f", shared by {narrow.links} links" if narrow.links > 1 else ""
    return f"; {100 * narrow.seconds / total_s:.0f} % of the time went over {narrow.link}{shared}"


def _sentence(
    total_s: float, spent: Mapping[TimeUse, float], nodes: Sequence[NodeLag], path: Sequence[Leg], parted_s: float
) -> str:
    least = LEAST_SHARE * total_s
    parted = f" ({seconds(parted_s)} of it while the fleet was parted)" if parted_s > least else ""
    said = {cause: value for cause, value in spent.items() if value > least and cause is not TimeUse.BEHIND}
    parts = [(value, f"{seconds(value)} {_what(cause, path, parted)}") for cause, value in said.items()]
    shown = [each for each in nodes[:MOST_NODES] if each.seconds > least]
    parts += [(each.seconds, each.words()) for each in shown]
    others = [each for each in nodes if each not in shown]
    left = math.fsum(each.seconds for each in others)
    if left > least:
        parts.append((left, f"{seconds(left)} waiting for {len(others)} {'other ' if shown else ''}nodes behind"))
    parts.sort(key=lambda part: -part[0])
    told, rest = [text for _, text in parts[:MOST_PARTS]], math.fsum(value for value, _ in parts[MOST_PARTS:])
    said_parts = [*told, *([f"{seconds(rest)} in smaller parts"] if rest else [])]
    return f"{seconds(total_s)}: {', '.join(said_parts)}" if said_parts else NOTHING


def _parted(run: Run, path: Sequence[Leg]) -> float:
    """Return the seconds of the critical path that messages spent on links while a partition was active."""
    rows = run.rows("SELECT at_s, kind = 'partition' FROM events WHERE node IS NULL AND kind LIKE 'partition%'")
    parted, began, depth = 0.0, 0.0, 0
    legs = [(leg.begin, leg.begin + leg.seconds) for leg in path if leg.cause is TimeUse.LINKS]
    for at_s, begins in [*sorted(rows), (math.inf, False)]:
        if depth > 0:
            parted += math.fsum(max(0.0, min(end, at_s) - max(begin, began)) for begin, end in legs)
        began, depth = at_s, depth + (1 if begins else -1)
    return parted


def _what(cause: TimeUse, path: Sequence[Leg], parted: str) -> str:
    """Return a phrase for people about the time of one use, to follow its seconds: `of compute`, `on links`.

    `parted` is added for links: the part during partitions.
    """
    nodes = sorted({node for leg in path if leg.cause is cause for node in leg.nodes})
    whose = "" if not nodes or len(nodes) > 2 else f" of node{'s' * (len(nodes) > 1)} {' and '.join(map(str, nodes))}"
    in_vain = f"{whose.removeprefix(' of ')} waited in vain and " if whose else ""
    return {
        TimeUse.COMPUTE: "of compute",
        TimeUse.LINKS: f"on links{parted}",
        TimeUse.RESENDING: "until what was lost was sent again",
        TimeUse.DEADLINES: f"until deadlines, for messages{whose} that did not come in time",
        TimeUse.LOST: f"for messages{whose} that were lost"
        if any(leg.why is LagReason.GONE for leg in path if leg.cause is cause)
        else f"until later messages{whose} told that one was lost",
        TimeUse.SKIPPED: f"in stalls, until the messages{whose} were skipped",
        TimeUse.REST: "of anything else",
        TimeUse.END: f"at the end, in which {in_vain}no node went on",
    }[cause]


def _rounds(history: History, deadlines: Mapping[int, Sequence[float]]) -> dict[str, list[float | None]]:
    took: defaultdict[int, list[float]] = defaultdict(list)
    for rounds in history.rounds.values():
        for each in rounds:
            took[each.round].append(each.end - each.begin)
    found: dict[str, list[float | None]] = {"median_s": [], "longest_s": [], "deadline_s": []}
    for round in range(max(took, default=-1) + 1):
        lengths, limits = took.get(round), deadlines.get(round)
        found["median_s"].append(median(lengths) if lengths else None)
        found["longest_s"].append(max(lengths) if lengths else None)
        found["deadline_s"].append(median(limits) if limits else None)
    return found


# what was recorded


def read_history(run: Run) -> tuple[History, dict[int, list[float]]]:
    """Return a run's history for the critical path, and the allowed lengths of waits with a deadline by round."""
    waits: defaultdict[NodeId, list[TimedWait]] = defaultdict(list)
    deadlines: defaultdict[int, list[float]] = defaultdict(list)
    for node, deadline_s, text, *row in run.rows(_WAITS):
        missing = () if text == "[]" else tuple(read_nodes(text))
        wait = TimedWait._make((missing, *row))
        waits[node].append(wait)
        if deadline_s is not None:
            deadlines[wait.round].append(deadline_s)
    for node, *row in run.rows(_FETCHES):
        waits[node].append(TimedWait._make(((), *row)))
        waits[node].sort(key=lambda wait: wait.until)
    starved = {(node, round): cpu_s for node, round, cpu_s in run.rows(_STARVED)}
    rounds: defaultdict[NodeId, list[EndedRound]] = defaultdict(list)
    for node, begin, end, round, train in run.rows(_ROUNDS):
        rounds[node].append(EndedRound(begin, end, round, train, starved.get((node, round))))
    outages: defaultdict[NodeId, list[NodeOutage]] = defaultdict(list)
    for node, kind, begin, end in read_outages(run.rows):
        outages[node].append(NodeOutage(begin, end, _OUTAGES.get(kind, LagReason.CRASH)))
    for node, why, begin, end in read_stops(run.rows):
        outages[node].append(NodeOutage(begin, end, why))
        outages[node].sort()
    gone = {(node, peer): at_s for node, peer, at_s in run.rows(_GONE)}
    sent = {tuple(row) for row in run.rows(_SENT)} if gone else set()
    return History(waits, rounds, outages, gone, sent, _usual_delays(run, outages), _lost(run)), deadlines


def _lost(run: Run) -> dict[tuple[NodeId, float, NodeId], float]:
    """Return, for waits that ended as the awaited node was gone, when the messages that got lost had been sent.

    By waiting node, begin of its wait, and awaited node.
    """
    return {
        (node, since_s, src): sent_s
        for node, since_s, src, fate, sent_s in run.rows(_LOST)
        if Fate.read(fate).counts_as is FateClass.LOST
    }


def _usual_delays(run: Run, outages: Mapping[NodeId, Sequence[NodeOutage]]) -> dict[tuple[NodeId, NodeId, str], float]:
    """Return the median delay in s by sender, receiver that was paused, and kind, over messages that met no pause."""
    pauses = [(node, each) for node, found in outages.items() for each in found if each.why is LagReason.PAUSE]
    if not pauses:
        return {}
    spans = {
        "nodes": [node for node, _ in pauses],
        "begins": [each.begin for _, each in pauses],
        "ends": [each.end for _, each in pauses],
    }
    return {(src, dst, kind): delay_s for src, dst, kind, delay_s in run.rows(_UNHELD, spans)}


_WAITS = (
    "SELECT w.node, w.deadline_s, CAST(w.missing AS VARCHAR), w.since_s, w.until_s, w.round, w.kind, w.ended, "
    "w.last_src, min(m.sent_s), arg_min(m.sent_s, m.arrived_s), min(m.arrived_s) "
    "FROM waits w LEFT JOIN messages m ON w.ended = 'came' AND m.src = w.last_src AND m.dst = w.node "
    "AND m.round = w.round AND m.step = w.step AND m.kind IN (w.kind, 'notice') "
    "WHERE w.since_s >= 0 AND w.until_s > w.since_s GROUP BY ALL ORDER BY w.until_s, w.node"
)
_FETCHES = (
    "WITH lives AS (SELECT r.node, r.at_s, r.round, CAST(r.details->>'source' AS INTEGER) AS src, max(b.at_s) AS born "
    "FROM events r JOIN events b ON b.node = r.node AND b.at_s <= r.at_s AND b.kind IN ('join', 'restart') "
    "WHERE r.kind = 'rejoin' GROUP BY ALL) "
    "SELECT l.node, min(f.sent_s), l.at_s, l.round, 'model', 'came', l.src, max(m.sent_s), max(m.sent_s), "
    "max(m.arrived_s) FROM lives l JOIN messages f ON f.kind = 'fetch' AND f.src = l.node AND f.sent_s >= l.born "
    "AND f.sent_s < l.at_s JOIN messages m ON m.kind = 'model' AND m.src = l.src AND m.dst = l.node "
    "AND m.arrived_s <= l.at_s GROUP BY l.node, l.at_s, l.round, l.src"
)
_ARRIVED = "SELECT src, dst, nbytes, sent_s, arrived_s FROM messages WHERE arrived_s IS NOT NULL"
_LOST = (
    "SELECT w.node, w.since_s, m.src, m.fate, min(m.sent_s) FROM waits w JOIN messages m ON w.ended = 'gone' "
    "AND m.dst = w.node AND m.round = w.round AND m.step = w.step AND m.kind = w.kind AND m.arrived_s IS NULL "
    "AND m.sent_s < w.until_s GROUP BY ALL ORDER BY min(m.sent_s) DESC"
)
_UNHELD = (
    "WITH pauses AS (SELECT unnest($nodes) AS dst, unnest($begins) AS begin_s, unnest($ends) AS end_s) "
    "SELECT m.src, m.dst, m.kind, median(m.arrived_s - m.sent_s) FROM messages m "
    "WHERE m.arrived_s IS NOT NULL AND m.dst IN (SELECT dst FROM pauses) AND NOT EXISTS (FROM pauses p "
    "WHERE p.dst = m.dst AND p.begin_s < m.arrived_s AND p.end_s > m.sent_s) GROUP BY m.src, m.dst, m.kind"
)
_STARVED = "SELECT node, round, min(value) FROM metrics WHERE name = 'train_cpu_s' AND node IS NOT NULL GROUP BY ALL"
_GONE = (
    "SELECT node, CAST(details->>'peer' AS INTEGER) AS peer, min(at_s) FROM events WHERE kind = 'gone' "
    "AND node IS NOT NULL GROUP BY ALL"
)
_SENT = (
    "SELECT DISTINCT m.src, m.dst, m.round FROM messages m JOIN (SELECT DISTINCT node, "
    "CAST(details->>'peer' AS INTEGER) AS peer FROM events WHERE kind = 'gone') g ON m.src = g.node AND m.dst = g.peer "
    "WHERE m.kind = 'data'"
)
_ROUNDS = (
    "SELECT node, at_s - max(value) FILTER (name = 'round_s'), at_s, round, "
    "coalesce(max(value) FILTER (name = 'train_s'), 0) FROM metrics "
    "WHERE node IS NOT NULL AND name IN ('round_s', 'train_s') GROUP BY node, round, at_s "
    "HAVING count(*) FILTER (name = 'round_s') > 0 ORDER BY at_s, node"
)
