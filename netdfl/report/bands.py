"""What the schedule did to links, for charts and lists: bands on the axis of time, and a row for each, or for many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from netdfl.links.schedule.changes import APART, gather_places
from netdfl.record.forms import read_details
from netdfl.record.run import Run
from netdfl.record.scheduled import ENDS
from netdfl.report.figures import COLORS, MOST_LETTERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCHEDULED = "(node IS NULL AND details->>'where' IS NOT NULL)"
"""Which rows of `events` are of the schedule of links, as SQL."""
MOST_BANDS = 8
MOST_SPANS = 400
PARTITION = "partition"


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


def draw_bands(axes: Axes, bands: Sequence[Band]) -> None:
    """Draw a row of bars for each of the first bands, from the top of `axes` down."""
    last = axes.get_xlim()[1]
    shown = bands[:MOST_BANDS]
    for place, band in enumerate(shown):
        bars = [(begin, (last if end is None else end) - begin) for begin, end in _joined(band.spans)]
        axes.broken_barh(bars, (-place - 0.35, 0.7), color=COLORS[place % len(COLORS)], alpha=0.75, linewidth=0.6)
    names = [band.name[: 2 * MOST_LETTERS] for band in shown]
    if len(bands) > MOST_BANDS:
        names[-1] += f", and {len(bands) - MOST_BANDS} more entries"
    axes.set_yticks([-place for place in range(len(shown))], names)
    axes.set(ylim=(-len(shown) + 0.4, 0.6))


def shade(axes: Axes, bands: Sequence[Band]) -> None:
    """Shade the times in which the fleet was parted, over the whole height, without a change of the axis."""
    first, last = axes.get_xlim()
    for band in bands:
        for begin, end in _joined(band.spans) if band.kind == PARTITION else ():
            low, high = max(first, begin), min(last, last if end is None else end)
            if low < high:
                axes.axvspan(low, high, color=COLORS[1], alpha=0.13, linewidth=0, zorder=0)
    axes.set_xlim(first, last)


def _joined(spans: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Spans that meet as one, as those of a trace; too many to draw are one from the first to the last."""
    joined: list[tuple[float, float | None]] = []
    for begin, end in spans:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    if len(joined) <= MOST_SPANS:
        return joined
    ends = [end for _, end in joined if end is not None]
    return [(joined[0][0], max(ends) if len(ends) == len(joined) else None)]
