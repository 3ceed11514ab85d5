"""The twin of a fleet: the scenario of its run with the fitted network and compute times, for the simulated world."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from netdfl.core.errors import InputError
from netdfl.core.files import write_given
from netdfl.record.run import open_run
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import plain_to_yaml, to_plain
from netdfl.study.twin.fitting import Fit, FittedLink, FittedValue, Shared, fit
from netdfl.study.twin.samples import read_samples
from netdfl.study.twin.unlike import Link, unlike_links

Document = dict[str, Any]
_OF_NETWORK = ("underlay", "links_from")
JITTER = 0.01
"""The smallest variation of compute times, as a share of their mean, that a twin gets; a smaller one is left out."""
MOST_NAMED = 5
"""The most links that a note names."""


@dataclass(frozen=True)
class Twin:
    """A twin of a run's fleet: the fit, the scenario with fitted values, and notes on what the fit can't determine."""

    fit: Fit
    document: Document
    notes: Sequence[str]

    def text(self) -> str:
        """Return the scenario as the text of a YAML file."""
        return plain_to_yaml(self.document)

    def rows(self) -> list[tuple[str, str, str]]:
        """Return a row for each fitted latency, rate or time: its name, its value and its interval, as text."""
        found, whole = self.fit, self.fit.whole
        rows = list(_rows_of("all nodes", whole, found.shared))
        for node, line in sorted(found.by_node.items()):
            rows += _rows_of(f"node {node}", line, found.shared)
        return [*rows, ("compute, a round", _seconds(found.compute_s.value), _span(found.compute_s, _seconds))]


def make_twin(path: Path | str, latency_s: float = 0.0, reading: Shared | None = None) -> Twin:
    """Fit the run at `path` and return its twin.

    Args:
        path: the directory of the run.
        latency_s: the latency in s to take if all messages are about equally large.
        reading: where the rate limits messages, at a node's `uplink` or at each `link`; None takes what fits better.

    Raises:
        InputError: The record has too few messages or rounds.
    """
    run = open_run(path)
    found = fit(read_samples(run), latency_s, reading)
    document = to_plain(load(run.path / "scenario.yaml"))
    return Twin(
        found, twin_document(document, found), list(_notes(document, found, latency_s, unlike_links(run, found)))
    )


def pace(twin: Twin, factor: float = 1.0, end: int = 0) -> Document:
    """Return the twin's scenario with all rates multiplied by `factor`.

    `end` chooses the numbers: 0: the fitted values; 1: the fast ends of their intervals; -1: the slow ends.
    """
    return twin_document(twin.document, twin.fit, factor, end)


def twin_document(document: Document, found: Fit, factor: float = 1.0, end: int = 0) -> Document:
    """Return `document` with the fitted links and compute times in place of its own ones.

    `factor` multiplies all rates, and `end` chooses the fitted values or an end of each interval, as in `pace`.
    """
    made = {key: value for key, value in document.items() if key not in _OF_NETWORK}
    links = {"default": _entry(found.whole, found, factor, end)}
    for node, line in sorted(found.by_node.items()):
        entry = _entry(line, found, factor, end)
        rate = entry.pop("uplink", None)
        if rate is not None:
            links[str(node)] = {"uplink": rate}
        links[f"{node}->*"] = entry
    world: Document = {"kind": "simulated", "compute": _compute(found, end)}
    if found.slow:
        middle = sorted(found.slow.values())[len(found.slow) // 2]
        world["stragglers"] = {"factor": round(middle, 3), "nodes": sorted(found.slow)}
    name = str(document["name"])
    return made | {"name": name if name.endswith("-twin") else f"{name}-twin", "world": world, "links": links}


def _at(of: FittedValue, end: int) -> float:
    return (of.value, of.high, of.low)[end]


def _entry(line: FittedLink, found: Fit, factor: float, end: int) -> Document:
    entry: Document = {"latency": f"{max(0, round(_at(line.latency_s, -end) * 1e9))}ns"}
    if line.rate_bps is not None:
        rate = round(_at(line.rate_bps, end) * factor)
        entry["uplink" if found.shared == "uplink" else "rate"] = f"{rate}bit"
    return entry


def _compute(found: Fit, end: int) -> Document:
    mean, jitter = round(_at(found.compute_s, -end) * 1e9), round(found.jitter_s * 1e9)
    if mean <= 0 or jitter < JITTER * mean:
        return {"kind": "constant", "time": f"{max(0, mean)}ns"}
    return {"kind": "lognormal", "mean": f"{mean}ns", "jitter": f"{jitter}ns"}


def _notes(document: Document, found: Fit, latency_s: float, unlike: Mapping[Link, float]) -> Sequence[str]:
    notes = []
    if not found.told_apart:
        notes.append(
            "all messages are about as large, which does not tell the latency from the rate; "
            f"{_seconds(latency_s)} is taken, --latency gives another one"
        )
    if not found.clearly:
        notes.append(
            "the messages do not tell an uplink that all of a node's messages share from links with rates of "
            "their own; the uplink is taken, --rate-of link takes the other"
        )
    if found.rounds == 1:
        notes.append(
            "all messages are of one round, so the intervals say how much messages differ, and not how much rounds do; "
            "let the fleet run longer"
        )
    if document.get("underlay"):
        notes.append(
            "the twin has no core links: what they took is in its latencies and rates, as the fleet shared them then"
        )
    if document.get("events"):
        notes.append("the events of the scenario act in the twin, too; what they did is also in the fit")
    if unlike:
        notes.append(_of_links(unlike))
    slow = ", ".join(f"node {node} {factor:.2g} times" for node, factor in found.slow.items())
    return [*notes, f"slow: {slow} the median"] if slow else notes


def _of_links(unlike: Mapping[Link, float]) -> str:
    """Return the note on links whose messages took far longer or shorter than fitted, naming the farthest from it."""
    ranked = sorted(unlike.items(), key=lambda each: -abs(math.log(each[1])))
    named = [f"{src}->{dst} {times:.2g} times" for (src, dst), times in ranked[:MOST_NAMED]]
    rest = f" and {len(ranked) - MOST_NAMED} more links" if len(ranked) > MOST_NAMED else ""
    (src, dst), _ = ranked[0]
    return (
        f"links took another time than is fitted to their sender: {', '.join(named)} as long{rest}; the twin has one "
        "latency and rate for all that a node sends, so give such a link a rule of its own there: "
        f'links: {{"{src}->{dst}": {{latency: TIME, rate: RATE}}}}'
    )


def _rows_of(who: str, line: FittedLink, shared: str) -> Sequence[tuple[str, str, str]]:
    rate = line.rate_bps
    what = "uplink" if shared == "uplink" else "rate of a link"
    fast = ("too fast to be seen", "")
    return [
        (f"latency, {who}", _seconds(line.latency_s.value), _span(line.latency_s, _seconds)),
        (f"{what}, {who}", *(fast if rate is None else (_rate(rate.value), _span(rate, _rate)))),
    ]


def _seconds(value: float) -> str:
    return f"{value * 1e3:.4g} ms"


def _rate(value: float) -> str:
    return f"{value / 1e6:.4g} Mbit/s"


def _span(of: FittedValue, words: Any) -> str:
    return f"{words(of.low)} to {words(of.high)}"


def write_twin(twin: Twin, out: Path) -> None:
    """Write the twin's scenario to the new file `out`. Raises InputError if it exists, or can't be written."""
    if out.exists():
        raise InputError(f"{out} is there already; name another file")
    write_given(out, twin.text())
