"""What the schedule did to links, for charts and lists: spans of time, and a row for each change, or for many."""

from __future__ import annotations

from dataclasses import dataclass, field

from netdfl.links.schedule.changes import APART, gather_places
from netdfl.record.forms import read_details
from netdfl.record.run import Run
from netdfl.record.scheduled import ENDS

SCHEDULED = "(node IS NULL AND details->>'where' IS NOT NULL)"
"""Which rows of `events` are of the schedule of links, as SQL."""


@dataclass(slots=True)
class Band:
    """One entry of `events` that changes links: the spans in which it did, and its rows for the list of events."""

    kind: str
    places: list[str] = field(default_factory=list)
    spans: list[tuple[float, float | None]] = field(default_factory=list)
    rows: list[tuple[float, list[str]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`partition 0..3 | 4..7`."""
        return f"{self.kind} {gather_places(self.places)}"

    def listed(self) -> list[tuple[float, list[str]]]:
        """The rows of the list, each behind its time; many are one."""
        if len(self.rows) <= 2 * APART:
            return self.rows
        at_s, (_, _, round, kind, _) = self.rows[0]
        said = f"{gather_places(self.places)}: {len(self.rows):,} changes until {self.rows[-1][0]:.3f} s"
        return [(at_s, [f"{at_s:.3f} s", "links", round, kind, said])]


def find_bands(run: Run) -> list[Band]:
    """The bands of `run`, in order of their entries."""
    rows = run.rows(
        f"SELECT at_s, round, kind, details FROM events WHERE {SCHEDULED} ORDER BY at_s, NOT ends_with(kind, ?), kind",
        [ENDS],
    )
    bands: dict[int, Band] = {}
    going_on: dict[tuple[int, str], int] = {}
    for at_s, round, kind, text in rows:
        details = read_details(text)
        entry, where, change = details.get("entry"), str(details.get("where")), details.get("change")
        if not isinstance(entry, int):
            continue
        band = bands.setdefault(entry, Band(kind.removesuffix(ENDS)))
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
