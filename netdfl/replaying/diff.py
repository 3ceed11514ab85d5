"""The comparison of two runs: the first row in which their records differ, and the consequences for each node."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from netdfl.core.errors import InputError
from netdfl.core.types import Json, NodeId
from netdfl.record.provenance import differing_sources, read_sources
from netdfl.record.run import Run
from netdfl.record.sampling import Sampling

MOST_NODES = 40
SIDES = ("first", "second")
_NOTHING = "nothing of the kind"
_MESSAGES = """
SELECT coalesce(arrived_s, sent_s), src, dst, kind, epoch, round, step, attempt, nbytes, sent_s, arrived_s, fate
FROM messages
"""
_METRICS = "SELECT at_s, node, round, name, value FROM metrics"
_EVENTS = (
    "SELECT at_s, node, round, kind, details::VARCHAR FROM events WHERE kind NOT IN ('training', 'start', 'finish')"
)
_WAITS = "SELECT until_s, node, round, step, kind, since_s, ended, last_src, missing::VARCHAR FROM waits"


class RecordRow(NamedTuple):
    """A row of a run's record: its time, the node it concerns (None: the fleet), and the row as text.

    `about` identifies the subject of the row, such as one message or one metric, so that it can be found in both runs.
    """

    at_s: float
    node: NodeId | None
    round: int
    about: tuple[object, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first event at which two runs diverge.

    Attributes:
        at_s: its time in seconds.
        first: the event as the first run has it; None if that run lacks it.
        second: the event as the second run has it; None if that run lacks it.
    """

    at_s: float
    first: str | None
    second: str | None

    @property
    def words(self) -> tuple[str, str, str]:
        """Three texts: when the two runs diverge, the event in the first run, and the event in the second."""
        return f"they part at {self.at_s:.9g} s", self.first or _NOTHING, self.second or _NOTHING


@dataclass(frozen=True, slots=True)
class Consequence:
    """The consequences of two runs' divergence for one node. Each pair has the values of the first and second run.

    Attributes:
        node: the node.
        at_s: when its rows in the two records first differ, in seconds; None: they never do.
        round: the round of that row, if any.
        what: the row as text.
        rounds: the number of rounds that it finished.
        lost: the number of its messages that links dropped.
        waited_s: the seconds that it waited for messages.
    """

    node: NodeId
    at_s: float | None
    round: int | None
    what: str
    rounds: tuple[int, int]
    lost: tuple[int, int]
    waited_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences between two runs.

    Attributes:
        runs: the names of the two runs.
        scenario: the lines that only one run's scenario has.
        sources: the user's modules, named files and packages that differ, with a digest or a version of either run.
        parting: the first difference of the records; None: they are equal.
        follow: the consequences of the first difference, for each node.
        ends: the entries of the two results that differ, each with both values.
        compared: a sentence on which messages were compared; empty: all were.
    """

    runs: tuple[str, str]
    scenario: Sequence[str]
    parting: Divergence | None
    follow: Sequence[Consequence] = ()
    ends: Mapping[str, tuple[object, object]] = field(default_factory=dict)
    compared: str = ""
    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether the two runs are equal from the start to the end."""
        return self.parting is None

    @property
    def text(self) -> str:
        """All differences between the two runs, as text for a terminal."""
        return "\n".join(_lines(self))

    def to_json(self) -> Json:
        """Return the differences between the two runs as plain data for JSON."""
        return asdict(self) | {"equal": self.equal}


def diff(first: Run, second: Run) -> Difference:
    """Compare the records of two runs. Raises InputError if an argument is no opened run, or a record is damaged."""
    for run in (first, second):
        if not isinstance(run, Run):
            raise InputError(f"{str(run)[:80]!r} is no opened run: open its directory by netdfl.open_run(path)")
    with first.held(), second.held():
        rows = [_rows(run, _common(first, second)) for run in (first, second)]
        lines = _scenarios(first, second)
        only = [_without(rows[0], rows[1]), _without(rows[1], rows[0])]
        paths = str(first.path), str(second.path)
        sources = differing_sources({SIDES[0]: read_sources(first.path), SIDES[1]: read_sources(second.path)})
        if not any(only):
            return Difference(paths, lines, None, compared=_compared(first, second), sources=sources)
        began = min((each[0] for each in only if each), key=lambda row: row.at_s)
        parting = Divergence(began.at_s, _said(only[0], began), _said(only[1], began))
        follow = list(_follow(first, second, only))
        return Difference(paths, lines, parting, follow, _ends(first, second), _compared(first, second), sources)


def _common(first: Run, second: Run) -> Sequence[Sampling]:
    """Return the rules by which the two runs chose which messages to record; a run that recorded all has no such rule.

    Only messages that fit all these rules are compared.
    """
    return list({run.sampling: None for run in (first, second) if not run.sampling.is_all})


def _compared(first: Run, second: Run) -> str:
    return "; ".join(sampling.words for sampling in _common(first, second))


def _rows(run: Run, common: Sequence[Sampling] = ()) -> list[RecordRow]:
    """Return a run's recorded rows in order of time; of the messages, only those that all rules in `common` record."""
    found = [
        RecordRow(at, src, round, (src, dst, kind, epoch, round, step, attempt), _message(row))
        for row in run.rows(_MESSAGES)
        for at, src, dst, kind, epoch, round, step, attempt, *_ in (row,)
        if all(each.records(src, dst, round, step, attempt, row[-1]) for each in common)
    ]
    for at, node, round, name, value in run.rows(_METRICS):
        told = "not finite" if value is None else repr(value)
        found.append(
            RecordRow(at, node, round, (node, round, name), f"{_who(node)}, round {round}: {name} {told} at {at:.9g} s")
        )
    for at, node, round, kind, details in run.rows(_EVENTS):
        found.append(
            RecordRow(
                at, node, round or 0, (node, round, kind, details), f"{_who(node)}, round {round}: {kind} at {at:.9g} s"
            )
        )
    for at, node, round, step, kind, since, ended, last, missing in run.rows(_WAITS):
        why = {"came": f"node {last} came last", "deadline": f"its deadline; missing {missing}"}.get(ended, ended)
        text = f"node {node}, round {round}: waited for {kind} from {since:g} s to {at:g} s ({why})"
        found.append(RecordRow(at, node, round, (node, round, step, kind), text))
    return sorted(found, key=lambda row: (row.at_s, row.text))


def _message(row: Sequence[object]) -> str:
    _, src, dst, kind, _, round, step, attempt, nbytes, sent_s, arrived_s, fate = row
    came = "" if arrived_s is None else f", came at {arrived_s:.9g} s"
    again = f", attempt {attempt}" if attempt else ""
    what = f"{kind} {src}->{dst}, round {round}, step {step}{again}"
    return f"{what}: sent at {sent_s:.9g} s{came}, {fate} ({nbytes} bytes)"


def _who(node: NodeId | None) -> str:
    return "the fleet" if node is None else f"node {node}"


def _without(rows: Sequence[RecordRow], others: Sequence[RecordRow]) -> list[RecordRow]:
    """Return the rows without a counterpart of the same time and text in `others`; each counterpart matches one row."""
    left = Counter((row.at_s, row.text) for row in others)
    found = []
    for row in rows:
        if left[row.at_s, row.text]:
            left[row.at_s, row.text] -= 1
        else:
            found.append(row)
    return found


def _said(rows: Sequence[RecordRow], began: RecordRow) -> str | None:
    """Return the text of the row about the same subject as `began`, such as one message; None if there is none."""
    return next((row.text for row in rows if row.about == began.about), None)


def _follow(first: Run, second: Run, only: Sequence[Sequence[RecordRow]]) -> Iterator[Consequence]:
    """Yield the consequences of the runs' divergence for each node, in the order in which the nodes' rows first differ.

    `only` has, for each run, the rows that the other run lacks.
    """
    reached: dict[NodeId, RecordRow] = {}
    for row in sorted((row for rows in only for row in rows), key=lambda row: (row.at_s, row.text)):
        if row.node is not None:
            reached.setdefault(row.node, row)
    facts = [_of_nodes(run) for run in (first, second)]
    nodes = sorted({*facts[0], *facts[1]}, key=lambda node: (reached[node].at_s if node in reached else math.inf, node))
    for node in nodes:
        parted = reached.get(node)
        one, other = (each.get(node, (0, 0, 0.0)) for each in facts)
        yield Consequence(
            node,
            None if parted is None else parted.at_s,
            None if parted is None else parted.round,
            "" if parted is None else parted.text,
            (one[0], other[0]),
            (one[1], other[1]),
            (one[2], other[2]),
        )


def _of_nodes(run: Run) -> dict[NodeId, tuple[int, int, float]]:
    """Return, for each node, its finished rounds, how many of its messages were lost, and the seconds it waited.

    A message that could not be delivered, because its receiver was down or gone, does not count as lost.
    """
    graph = run.graph
    rounds = dict(run.rows("SELECT node, count(*) FROM metrics WHERE name = 'round_s' AND node >= 0 GROUP BY node"))
    lost = dict(run.rows("SELECT src, count(*) FROM messages WHERE fate LIKE 'dropped%' GROUP BY src"))
    waited = dict(run.rows("SELECT node, sum(until_s - since_s) FROM waits GROUP BY node"))
    known = range(graph["num_nodes"]) if graph is not None else sorted({*rounds, *lost, *waited})
    return {node: (rounds.get(node, 0), lost.get(node, 0), waited.get(node, 0.0)) for node in known}


def _scenarios(first: Run, second: Run) -> list[str]:
    """Return the lines in which the scenarios of two runs differ, marked with - and +."""
    from difflib import unified_diff

    lines = unified_diff(first.scenario_text.splitlines(), second.scenario_text.splitlines(), lineterm="", n=0)
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def _ends(first: Run, second: Run) -> dict[str, tuple[object, object]]:
    """Return the entries in which two runs' results differ (verdict, accuracy and so on), with both values."""
    one, other = (_end(run.result if run.finished else {}) for run in (first, second))
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


def _end(result: Json) -> dict[str, object]:
    accuracy = (result.get("test_accuracy") or {}).get("average_model", {}).get("last")
    names = ("verdict", "virtual_duration_s", "consensus_distance", "error")
    return {name: result.get(name) for name in names} | {"accuracy": accuracy}


def _lines(found: Difference) -> Iterator[str]:
    if found.scenario:
        yield "the scenarios differ:"
        yield from (f"  {line}" for line in found.scenario[:MOST_NODES])
    if found.sources:
        yield "they were made with other sources, by digest or version:"
        yield from (f"  {name:<20}{'  '.join(of[side] or '-' for side in SIDES)}" for name, of in found.sources.items())
    parting = found.parting
    if found.compared:
        yield f"of messages that were delivered not all are compared: {found.compared}"
    if parting is None:
        yield "the two runs went the same way, in every message, figure, wait and event"
        return
    at, one_had, other_had = parting.words
    yield f"{at}:"
    yield f"  first   {one_had}"
    yield f"  second  {other_had}"
    yield "what followed (first run / second run):"
    yield f"  {'node':<6}{'parts at':<16}{'in round':<10}{'rounds ended':<15}{'lost':<12}{'waited':<20}"
    for each in found.follow[:MOST_NODES]:
        at = "never" if each.at_s is None else f"{each.at_s:.9g} s"
        told = (f"{each.rounds[0]} / {each.rounds[1]}", f"{each.lost[0]} / {each.lost[1]}")
        waited = f"{each.waited_s[0]:.4g} s / {each.waited_s[1]:.4g} s"
        round = "" if each.round is None else each.round
        yield f"  {each.node:<6}{at:<16}{round:<10}{told[0]:<15}{told[1]:<12}{waited}".rstrip()
    if len(found.follow) > MOST_NODES:
        yield f"  and {len(found.follow) - MOST_NODES} more nodes"
    for name, (one, other) in found.ends.items():
        yield f"{name}: {_told(one)} / {_told(other)}"


def _told(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "none" if value is None else str(value)
