"""The events of a run for its page: crashes and the like, waits, outages of nodes, logs, scheduled changes of links.

A chart shows changes of links as spans of time; a list shows a row for each, or one row for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from netdfl.core.errors import InputError
from netdfl.core.files import read_plain
from netdfl.links.schedule.changes import APART, gather_places
from netdfl.record.forms import read_details, read_nodes
from netdfl.record.history import read_outages
from netdfl.record.run import Run
from netdfl.record.scheduled import ENDS
from netdfl.report.data.frame import FIGURE, TIME, Frame, Made, TextColumn, shorten
from netdfl.report.words import some

SCHEDULED = "(node IS NULL AND details->>'where' IS NOT NULL)"
"""The SQL condition that selects the rows of the table `events` about scheduled changes of links."""


@dataclass(slots=True)
class LinkEventBand:
    """The changes of links that one entry of the scenario's `events` makes, drawn as one band of a chart.

    Attributes:
        kind: the kind of change, such as a partition.
        places: the links or nodes that it concerns, as text.
        spans: when it lasts, as (begin, end) in seconds; an end of None: to the end of the run.
        rows: its rows in the list of events, each with its time in seconds.
    """

    kind: str
    places: list[str] = field(default_factory=list)
    spans: list[tuple[float, float | None]] = field(default_factory=list)
    rows: list[tuple[float, list[str]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The scenario's entry as text: `partition 0..3 | 4..7`."""
        return f"{self.kind} {gather_places(self.places)}"

    def listed(self) -> list[tuple[float, list[str]]]:
        """Return this entry's rows for the list of events, each with its time; many rows are merged into one."""
        if len(self.rows) <= 2 * APART:
            return self.rows
        at_s, (_, _, round, kind, _) = self.rows[0]
        said = f"{gather_places(self.places)}: {len(self.rows):,} changes until {self.rows[-1][0]:.3f} s"
        return [(at_s, [f"{at_s:.3f} s", "links", round, kind, said])]


def find_bands(run: Run) -> list[LinkEventBand]:
    """Return the link changes of `run`, a band for each entry of the scenario's `events`, in the order of that list."""
    rows = run.rows(
        f"SELECT at_s, round, kind, details FROM events WHERE {SCHEDULED} ORDER BY at_s, NOT ends_with(kind, ?), kind",
        [ENDS],
    )
    bands: dict[int, LinkEventBand] = {}
    going_on: dict[tuple[int, str], int] = {}
    for at_s, round, kind, text in rows:
        details = read_details(text)
        entry, where, change = details.get("entry"), str(details.get("where")), details.get("change")
        if not isinstance(entry, int):
            continue
        band = bands.setdefault(entry, LinkEventBand(kind.removesuffix(ENDS)))
        place = going_on.pop((entry, where), None)
        if place is not None:
            band.spans[place] = (band.spans[place][0], at_s)
        if not kind.endswith(ENDS):
            going_on[entry, where] = len(band.spans)
            band.spans.append((at_s, None))
            band.places.append(where)
        said = f"{where}: {change}" if change else where
        band.rows.append((at_s, [f"{at_s:.3f} s", "links", str(round), kind.replace("_", " "), said]))
    return [bands[entry] for entry in sorted(bands)]


ROUTINE = ("start", "finish", "round_begin", "round_end", "bounds", "came")
MOST_WAITS = 20_000
MOST_EVENTS = 2000
MOST_NAMES = 12


def bands(run: Run) -> list[Made]:
    """Return the scheduled link changes of `run`: kind, name, and time spans (end None: to the end of the run)."""
    return [
        {"kind": band.kind, "name": band.name[:120], "spans": [list(span) for span in joined(band.spans)]}
        for band in find_bands(run)
    ]


def joined(spans: list[tuple[float, float | None]], most: int = 400) -> list[tuple[float, float | None]]:
    """Join time spans (begin, end) that touch; if more than `most` are left, return one from the first to the last.

    An end of None stands for the end of the run.
    """
    made: list[tuple[float, float | None]] = []
    for begin, end in spans:
        if made and made[-1][1] == begin:
            made[-1] = (made[-1][0], end)
        else:
            made.append((begin, end))
    if len(made) <= most:
        return made
    ends = [end for _, end in made if end is not None]
    return [(made[0][0], max(ends) if len(ends) == len(made) else None)]


def events(run: Run) -> list[Made]:
    """Return a run's events except changes of links, in order of time; equal events of many nodes are merged."""
    rows = run.rows(
        f"SELECT at_s, node, round, kind, details FROM events WHERE kind NOT IN ? AND NOT {SCHEDULED} "
        "ORDER BY at_s, node NULLS FIRST, round, kind, CAST(details AS VARCHAR) LIMIT 100000",
        [ROUTINE],
    )
    heaps: dict[tuple[object, ...], Made] = {}
    for at_s, node, round, kind, text in rows:
        details = read_details(text)
        told = _told(details)
        same = (kind, told) if node is not None and told else (kind, round, node is None, told)
        heap = heaps.setdefault(
            same, {"at_s": at_s, "last_s": at_s, "round": round, "kind": kind, "details": told, "times": 0, "nodes": []}
        )
        heap["times"] += 1
        heap["last_s"] = at_s
        if node is not None and node not in heap["nodes"][:MOST_NAMES]:
            heap["nodes"].append(node)
    return [_shortened(heap) for heap in list(heaps.values())[:MOST_EVENTS]]


def _shortened(heap: Made) -> Made:
    return {**heap, "nodes": heap["nodes"][:MOST_NAMES], "num_nodes": len(set(heap["nodes"]))}


def _told(details: Made) -> str:
    told = {key: some(value) if isinstance(value, list) else value for key, value in details.items()}
    return ", ".join(f"{key}: {value}" for key, value in told.items())[:400]


def event_counts(run: Run) -> Made:
    """Return the number of events of each kind."""
    return dict(run.rows("SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind"))


def outages(run: Run) -> list[Made]:
    """Return the times in which nodes were down or paused (end None: until the run's end)."""
    return [
        {"node": node, "why": kind, "since": begin, "until": None if end == math.inf else end}
        for node, kind, begin, end in sorted(read_outages(run.rows), key=lambda outage: outage[0])
    ]


def waits(run: Run, frame: Frame) -> Made:
    """Return the nodes' waits for messages as columns: node, begin, end, round, and by what and whom each was ended.

    If there are too many for the page, only the longest are returned, and `all` is false.
    """
    shown = None if frame.shows_all else list(frame.nodes)
    rows = run.rows(
        "SELECT node, since_s, until_s, round, ended, last_src, CAST(missing AS VARCHAR), deadline_s FROM waits "
        "WHERE until_s > since_s AND ($shown IS NULL OR list_contains($shown, node)) "
        f"ORDER BY until_s - since_s DESC, until_s, node LIMIT {MOST_WAITS}",
        {"shown": shown},
    )
    rows.sort(key=lambda row: (row[1], row[0]))
    ended = TextColumn()
    return {
        "node": [row[0] for row in rows],
        "since": shorten([row[1] for row in rows], TIME),
        "until": shorten([row[2] for row in rows], TIME),
        "round": [row[3] for row in rows],
        "how": ended.places(row[4] for row in rows),
        "last": [row[5] for row in rows],
        "missing": [read_nodes(row[6])[:MOST_NAMES] for row in rows],
        "deadline": shorten([row[7] for row in rows], FIGURE),
        "ended": ended.texts,
        "all": len(rows) < MOST_WAITS,
    }


MOST_NODES, MOST_TEXT = 64, 4000


def logs(run: Run, frame: Frame) -> Made:
    """Return the last lines of each node's log, by node; none for a large fleet or an empty log."""
    if frame.num_nodes > MOST_NODES or not (run.path / "logs").is_dir():
        return {}
    found: Made = {}
    for node in frame.nodes:
        try:
            text = read_plain(run.path / "logs" / f"{node:03d}.log")
        except (FileNotFoundError, InputError):
            continue
        if text:
            found[str(node)] = text[-MOST_TEXT:]
    return found
