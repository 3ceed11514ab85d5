"""The report's sections: each reads a run and reports on one subject, or returns None.

A section is a function from a run to a `Section` or None. To add one, write it and name it in
`SECTIONS`; the page shows them in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from netdfl.core.fates import MEANINGS, NOT_DELIVERED, FateClass
from netdfl.core.types import Json
from netdfl.core.units import format_bytes
from netdfl.links.rules.figures import comes_to
from netdfl.record.evaluated import all_evaluations
from netdfl.record.judge import is_measured
from netdfl.record.messages import count_messages
from netdfl.record.remarks import find_deaths
from netdfl.record.run import Run
from netdfl.record.time_spent import NOTHING
from netdfl.report.data.fleet import graph_words
from netdfl.report.data.frame import Made
from netdfl.report.data.happened import event_counts, events, find_bands
from netdfl.report.data.measured import MEASURED
from netdfl.report.data.section import Section, Table
from netdfl.report.data.traffic import links
from netdfl.report.words import WHY, figure, part_rows, say_rounds, share, some

MOST_ROWS = 12
MOST_EVENTS = 200
MOST_ROUNDS = 40
MOST_CLIENTS = 60
MOST_STALLS = 3
"""With more stalls than these, the section about them shows the sentence of the first, and folds the table."""
STALL_STATES = (("suspected", "suspected"), ("over", "over"), ("permanent", "for good"))


def deaths(run: Run) -> Section | None:
    """Return a section on nodes that ended unplanned: round, reason, and the nodes that waited for their messages."""
    rows = []
    for death in find_deaths(run):
        waiters = [f"node {w['node']} (round {w['round']})" for w in death["waited_for_by"]]
        rows.append([f"node {death['node']}", str(death["round"]), death["reason"], some(waiters) or "nobody"])
    table = Table(("who", "round", "of what", "who waited for it"), rows)
    return Section("Nodes that died", "These nodes ended without being told to.", tables=[table]) if rows else None


def stalls(run: Run) -> Section | None:
    """Return a section on stalls of the fleet: cause, whether it is over, round, begin, detection time, a sentence."""
    result = run.result if run.finished else {}
    listed = [*result.get("deadlocks", ()), *result.get("stalls", ())]
    if not listed:
        return None
    rows = [
        [
            found["cause"].replace("_", " "),
            next((word for key, word in STALL_STATES if found[key]), "stands"),
            str(found["round"]),
            f"{found['began_s']:.3f} s",
            f"{found['detection_s']:.3g} s",
            found["text"],
        ]
        for found in listed
    ]
    many = len(rows) > MOST_STALLS
    head = ("cause", "state", "round", "since", "found after", "what")
    table = Table(head, rows, f"All {len(rows)} stalls" if many else "", folded=many)
    return Section("Why nodes waited", str(listed[0]["text"]) if many else "", [table])


JUDGED = {
    "test_accuracy": "accuracy, average model",
    "mean_local_accuracy": "accuracy, mean of local models",
    "mean_personal_accuracy": "accuracy, local models on their own labels",
    "test_loss": "test loss",
    "error": "error",
    "consensus_distance": "consensus distance",
    "weight_sum": "sum of w over n",
}


def learning(run: Run) -> Section | None:
    """Return a section on the fleet's metrics by round; None if there is nothing to show."""
    measured = all_evaluations(run)
    told = [*JUDGED, *(name for name in measured if is_measured(name) and name not in JUDGED)]
    series = {name: {e.round: e.value for e in measured[name]} for name in told if name in measured}
    train = dict(
        run.rows(
            "SELECT round, median(value) FROM metrics WHERE name = 'train_loss' AND node IS NOT NULL "
            "AND value IS NOT NULL GROUP BY round ORDER BY round"
        )
    )
    judged = sorted({round for values in series.values() for round in values}) or sorted(train)
    if not judged:
        return None
    rounds = judged[:: -(-len(judged) // MOST_ROUNDS)]
    rounds += [judged[-1]] * (rounds[-1] != judged[-1])
    columns = [*series, *(["train_loss"] if train else [])]
    rows = [
        [str(round), *(_judged(name, values.get(round)) for name, values in {**series, "train_loss": train}.items())]
        for round in rounds
    ]
    head = ["round", *(_column(name) for name in columns)]
    caption = "What was measured of the fleet, by round." + (" Some rounds are left out." if rounds != judged else "")
    return Section("Learning", tables=[Table(head, [row[: len(head)] for row in rows], caption, folded=True)])


def _column(name: str) -> str:
    return "train loss, median node" if name == "train_loss" else JUDGED.get(name, name.replace("_", " "))


def _judged(name: str, value: float | None) -> str:
    return share(value) if "accuracy" in name else figure(value)


def time_spent(run: Run) -> Section | None:
    """Return a section on what the run's time was spent on (computing, links, waiting), and on the length of rounds."""
    spent = run.result.get("time") if run.finished else None
    if spent is None:
        lengths = _lengths(run)
        return None if lengths is None else Section("Where the time went", say_rounds(lengths))
    caption = "The critical path, from the end of the last node back to the start: what the fleet's time was spent on."
    parts = part_rows(spent)
    tables = [Table(("what", "time", "share"), parts, caption)] if parts else []
    told = [] if spent["text"] == NOTHING else [f"{spent['text']}."]  # the rounds say the same
    return Section("Where the time went", " ".join([*told, say_rounds(spent)]), tables)


def _lengths(run: Run) -> Json | None:
    """Return the lengths of rounds until now in the form of `time` in `result.json`; None if no round has ended."""
    rows = run.rows(
        "SELECT round, median(value), max(value) FROM metrics "
        "WHERE node IS NOT NULL AND name = 'round_s' AND value IS NOT NULL GROUP BY round"
    )
    if not rows:
        return None
    found = {round: (middle, longest) for round, middle, longest in rows}
    by_round = [found.get(round, (None, None)) for round in range(max(found) + 1)]
    return {"rounds": {"median_s": [m for m, _ in by_round], "longest_s": [m for _, m in by_round], "deadline_s": []}}


def graph_and_links(run: Run) -> Section | None:
    """Return a section on the graph and the traffic of its links."""
    tables, lede = [], ""
    if (graph := run.graph) is not None:
        died = sorted({death["node"] for death in find_deaths(run)})
        lede = graph_words(graph) + (f" Died: {some(died)}." if died else "")
    traffic = links(run, MOST_ROWS)
    if traffic["total"]:
        tables = [_link_table(traffic), _fate_table(run)]
    between = run.result.get("links", {}).get("network") if run.finished else None
    if between:
        tables.append(_network_table(between))
    rules = run.result.get("link_rules") if run.finished else None
    if rules:
        tables.append(_rule_table(rules))
    return Section("Graph and links", lede, tables) if lede or tables else None


def _link_table(traffic: Made) -> Table:
    """Return a table of links, with a column for each class of undelivered messages (lost, late and so on)."""
    classes, total = [name for name in NOT_DELIVERED if name in traffic], traffic["total"]
    delays = traffic.get("median") or [None] * len(traffic["src"])
    rows = [
        [
            f"{src} → {traffic['dst'][place]}",
            f"{traffic['sent'][place]:,}",
            format_bytes(traffic["nbytes"][place]),
            *(_part(traffic[name][place], traffic["sent"][place]) for name in classes),
            "–" if delays[place] is None else f"{delays[place] * 1e3:.3g} ms",
        ]
        for place, src in enumerate(traffic["src"])
    ]
    which = "Every link" if total <= MOST_ROWS else f"{MOST_ROWS} of {total:,} links"
    order = "those that lost most first, then those that carried most" if "lost" in traffic else "by bytes"
    return Table(("link", "messages", "bytes", *classes, "median delay"), rows, f"{which}, {order}.")


def _part(number: int, of: int) -> str:
    return f"{number:,} ({number / of:.1%})" if number else "0"


def _network_table(ways: Sequence[Json]) -> Table:
    """Return a table of round trips and rates between the fleet's machines, as measured before the run."""
    rows = [
        [
            f"{way.get('src')} → {way.get('dst')}",
            _number(way.get("round_trip_s"), 1e3, "ms"),
            _number(way.get("rate_bps"), 1e-6, "Mbit/s"),
        ]
        for way in ways[:MOST_ROWS]
    ]
    caption = "The network between machines, measured before the run; links' rules act on top of it."
    return Table(("from → to", "round trip", "rate"), rows, caption)


def _number(value: object, times: float, unit: str) -> str:
    return f"{value * times:,.4g} {unit}" if isinstance(value, int | float) and value > 0 else "–"


def _rule_table(rules: Sequence[Json]) -> Table:
    rows = [
        [rule["of"], rule["key"], rule["rule"], comes_to(rule)]
        + (["links"] if rule["event"] is None else [f"events[{rule['event']}]"])
        for rule in rules
    ]
    caption = "The rules of links, and what they come to in the long run."
    return Table(("of", "what", "rule", "comes to", "by"), rows, caption, folded=len(rows) > MOST_ROWS)


def _fate_table(run: Run) -> Table:
    """Return a table of the fates of messages (such as delivered, lost, late), with their meanings and reasons."""
    found = count_messages(run)
    rows = []
    for name in FateClass:
        number, reasons = getattr(found.counts, name), found.why.get(name, {})
        if number:
            rows.append([name.value, f"{number:,}", f"{number / found.counts.sent:.2%}", MEANINGS[name]])
            for reason, part in reasons.items():
                meaning = WHY.get(name, {}).get(reason, "")
                rows.append([f"– {reason.replace('_', ' ')}", f"{part:,}", f"{part / found.counts.sent:.2%}", meaning])
    return Table(("what became of them", "messages", "share", "that is"), rows, "What became of the messages.")


def labels(run: Run) -> Section | None:
    """Return a section on the distribution of the training data over clients: sizes, and samples by class."""
    partition = run.partition
    if partition is None:
        return None
    counts = np.asarray(partition["counts"], dtype=float)
    sizes = counts.sum(axis=1)
    lede = f"{sizes.sum():,.0f} training samples; a client has {sizes.min():,.0f} to {sizes.max():,.0f} of them."
    if max(counts.shape) > MOST_CLIENTS:
        return Section("Who got which data", lede)
    names = [str(name) for name in partition["classes"]]
    rows = [[str(client), *(f"{number:,.0f}" for number in row)] for client, row in enumerate(counts)]
    table = Table(("client", *names), rows, "Samples of each class at each client.", folded=True)
    return Section("Who got which data", lede, [table])


def timeline(run: Run) -> Section | None:
    """Return a section with all events in order of time; equal events of many nodes are one row."""
    of_links = [row for band in find_bands(run) for row in band.listed()]
    heaps = events(run)
    told = [(heap["at_s"], [f"{heap['at_s']:.3f} s", *_heap(heap)]) for heap in heaps]
    rows = [cells for _, cells in sorted((*told, *of_links), key=lambda row: row[0])]
    if not rows:
        return None
    num = len(rows)
    title = f"The first {MOST_EVENTS} of {num:,} events" if num > MOST_EVENTS else "All events"
    counts = ", ".join(f"{count:,} {kind.replace('_', ' ')}" for kind, count in event_counts(run).items())
    table = Table(("at", "node", "round", "event", "details"), rows[:MOST_EVENTS], title, folded=True)
    return Section("What happened when", f"Of all nodes: {counts}.", [table])


def _heap(heap: Json) -> list[str]:
    nodes = ", ".join(map(str, heap["nodes"])) + (" and more" if heap["num_nodes"] > len(heap["nodes"]) else "")
    times = f" ({heap['times']:,} times, until {heap['last_s']:.3f} s)" if heap["times"] > 1 else ""
    return [nodes or "fleet", str(heap["round"]), f"{heap['kind']}{times}", heap["details"]]


SECTIONS: tuple[Callable[[Run], Section | None], ...] = (
    deaths,
    stalls,
    learning,
    time_spent,
    graph_and_links,
    labels,
    timeline,
    *MEASURED,
)
