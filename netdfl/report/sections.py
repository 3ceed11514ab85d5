"""The report's sections: each reads a run and says one thing about it, or nothing.

A section is a function from a run to a `Section` or None. To add one, write it and name it in
`SECTIONS`; the page shows them in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from netdfl.core.clock import NS_PER_S
from netdfl.core.fates import MEANINGS, NOT_DELIVERED, FateClass
from netdfl.core.graph_words import count_words, redrawn_words
from netdfl.core.types import Json, NodeId
from netdfl.core.units import format_bytes
from netdfl.diagnosis.keep import Kept, kept_stalls
from netdfl.links.rules.figures import say
from netdfl.record.export import ORDER
from netdfl.record.forms import GraphForm, read_details
from netdfl.record.messages import LinkTraffic, count_by_link, count_messages
from netdfl.record.result import evaluations, find_deaths
from netdfl.record.run import Run
from netdfl.report.bands import SCHEDULED, find_bands
from netdfl.report.figures import (
    Curve,
    Mark,
    draw_bars,
    draw_curves,
    draw_matrix,
)
from netdfl.report.graph import draw_graph
from netdfl.report.node_times import MOST_BARS, NodeTime, blocks, draw_node_times, say_rounds
from netdfl.report.stall_figures import MOST_LIFELINES, Arrow, draw_messages, draw_waits, shown_nodes
from netdfl.report.timeline import draw_timeline
from netdfl.report.times import part_rows, round_curves
from netdfl.report.words import WHY

MOST_ROWS = 12
MOST_DRAWN = 4000
MOST_EVENTS = 200
MOST_STALLS = 3
STALL_STATES = (("suspected", "suspected"), ("over", "over"), ("permanent", "for good"))
MOST_ARROWS_AROUND = 40
OF_THE_MACHINE = ("training",)
"""Events that are told, and nothing that happened to the fleet."""
ROUTINE = ("start", "finish", "round_begin", "round_end")


@dataclass(frozen=True, slots=True)
class Figure:
    """One drawing, as an SVG element, and what it shows; `wide` takes the page's whole width."""

    svg: str
    caption: str
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under a head; `folded` hides them until the reader asks."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """A title, a sentence, figures, tables."""

    title: str
    lede: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()


def deaths(run: Run) -> Section | None:
    """Who died unplanned, when, of what, and who waited for them."""
    rows = []
    for death in find_deaths(run):
        waiters = [f"node {w['node']} (round {w['round']})" for w in death["waited_for_by"]]
        rows.append([f"node {death['node']}", str(death["round"]), death["reason"], _some(waiters) or "nobody"])
    table = Table(("who", "round", "of what", "who waited for it"), rows)
    return Section("Nodes that died", "These nodes ended without being told to.", tables=[table]) if rows else None


def stalls(run: Run) -> Section | None:
    """Why the fleet stood, or stands: a sentence, the wait-for graph, the messages around it."""
    result = run.result if run.finished else {}
    listed = [*result.get("deadlocks", ()), *result.get("stalls", ())]
    if not listed:
        return None
    figures = [figure for kept in kept_stalls(run.path)[:MOST_STALLS] for figure in _stall_figures(run, kept)]
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
    table = Table(("cause", "state", "round", "since", "found after", "what"), rows)
    return Section("Why nodes waited", str(listed[0]["text"]), figures, [table])


def _stall_figures(run: Run, kept: Kept) -> list[Figure]:
    found = kept["finding"]
    waits = [
        (now["node"], int(source))
        for now in kept["nodes"]
        if now["wait"] is not None
        for source in now["wait"]["awaited"]
    ]
    about = {
        "nodes": shown_nodes(found, MOST_LIFELINES),
        "began_s": found["began_s"],
        "found_s": found["found_s"],
        "most": MOST_ARROWS_AROUND,
    }
    rows = run.rows(
        "SELECT src, dst, round, sent_s, arrived_s, fate FROM messages "
        "WHERE src IN $nodes AND dst IN $nodes AND sent_s <= $found_s "
        "AND kind NOT IN ('heartbeat', 'probe', 'query', 'status') "
        f"ORDER BY abs(sent_s - $began_s), {ORDER['messages']} LIMIT $most",
        about,
    )
    arrows = sorted((Arrow(*row) for row in rows), key=lambda arrow: arrow.sent_s)
    since = {
        now["node"]: now["wait"]["since_ns"] / NS_PER_S
        for now in kept["nodes"]
        if now["wait"] is not None and "since_ns" in now["wait"]
    }
    return [
        Figure(draw_waits(found, waits), f"Who waits for whom: {found['text']}."),
        Figure(
            draw_messages(found, arrows, since, find_bands(run)),
            "The messages around the beginning of the stall, by node and time.",
            wide=True,
        ),
    ]


def learning(run: Run) -> Section | None:
    """Accuracy, consensus and loss over rounds, with the spread over nodes."""
    figures = []
    accuracy = [
        *_fleet_curve(run, "test_accuracy", "average model"),
        *_fleet_curve(run, "mean_local_accuracy", "mean of local models"),
        *_fleet_curve(run, "mean_personal_accuracy", "mean of local models, each on its own labels"),
        *_spread(run, "test_accuracy", "local models"),
    ]
    if accuracy:
        figures.append(Figure(draw_curves(accuracy, "test accuracy", percent=True), "Accuracy on the whole test set."))
    if consensus := _fleet_curve(run, "consensus_distance", "consensus distance"):
        log = min(consensus[0].values) > 0
        svg = draw_curves(consensus, "consensus distance", log=log)
        figures.append(Figure(svg, "How far the nodes' models are from their mean."))
    loss = [*_spread(run, "train_loss", "train, median node"), *_fleet_curve(run, "test_loss", "test, average model")]
    if loss:
        figures.append(Figure(draw_curves(loss, "loss"), "Loss. The band spans all nodes."))
    if weight := _fleet_curve(run, "weight_sum", "sum of w over n"):
        svg = draw_curves(weight, "sum of w / n", from_zero=True)
        figures.append(Figure(svg, "Push-sum weight that live nodes hold; less than 1 is lost or in flight."))
    return Section("Learning", figures=figures) if figures else None


def _fleet_curve(run: Run, metric: str, name: str) -> list[Curve]:
    points = [(e.round, e.value) for e in evaluations(run, metric) if e.value is not None]
    return [Curve(name, [p[0] for p in points], [p[1] for p in points])] if points else []


def _spread(run: Run, metric: str, name: str) -> list[Curve]:
    """The median over nodes, and the band from the lowest to the highest of them."""
    rows = run.rows(
        "SELECT round, median(value), min(value), max(value) FROM metrics "
        "WHERE name = ? AND node IS NOT NULL AND value IS NOT NULL GROUP BY round ORDER BY round",
        [metric],
    )
    return [Curve(name, *map(list, zip(*rows, strict=True)))] if rows else []


def time_spent(run: Run) -> Section | None:
    """Where each node's rounds went: training, waiting, the rest."""
    rows = run.rows(
        "SELECT node, coalesce(favg(value) FILTER (name = 'train_s'), 0), "
        "coalesce(favg(value) FILTER (name = 'wait_s'), 0), favg(value) FILTER (name = 'round_s') "
        "FROM metrics WHERE node IS NOT NULL "
        "GROUP BY node HAVING count(*) FILTER (name = 'round_s') > 0 ORDER BY node"
    )
    if not rows:
        return None
    times = [NodeTime(*row) for row in rows]
    drawn, lede = draw_node_times(times), say_rounds(times)
    figures = [] if drawn is None else [Figure(*drawn, wide=True)]
    spent = run.result.get("time") if run.finished else None
    if spent is None:
        return Section("Where the time went", lede, figures)
    curves, log = round_curves(spent)
    if curves:
        svg = draw_curves(curves, "seconds", log=log)
        figures.append(Figure(svg, "How long each round took, and the deadline then."))
    caption = "The critical path, from the end of the last node back to the start: what the fleet's time was spent on."
    table = Table(("what", "time", "share"), part_rows(spent), caption)
    return Section("Where the time went", f"{spent['text']}. {lede}", figures, [table])


def graph_and_links(run: Run) -> Section | None:
    """The graph, and what crossed each of its links."""
    figures, tables = [], []
    if (graph := run.graph) is not None:
        died = {death["node"] for death in find_deaths(run)}
        figures.append(Figure(draw_graph(graph, died), _graph_caption(graph) + (" Red: died." if died else "")))
    links = count_by_link(run)
    if links:
        size = _num_nodes(run)
        if size <= MOST_DRAWN:
            sent = np.full((size, size), np.nan)
            for link in links:
                sent[link.edge] = link.nbytes / 1e3
            figures.append(_traffic(sent))
        tables = [_link_table(links), _fate_table(run)]
    rules = run.result.get("link_rules") if run.finished else None
    if rules:
        tables.append(_rule_table(rules))
    return Section("Graph and links", figures=figures, tables=tables) if figures else None


def _graph_caption(graph: GraphForm) -> str:
    """What is drawn: of a graph that changes, that of round 0."""
    directed = bool(graph.get("directed"))
    count = count_words(graph["num_nodes"], len(graph["edges"]), directed=directed)
    every, chosen, kind = graph.get("redraw_every", 0), graph.get("chosen_anew", False), graph.get("kind", "as drawn")
    if every or chosen:
        how = redrawn_words(every, chosen=chosen, server=graph.get("server") is not None)
        return f"The graph of round 0, {kind}: {count}; {how}."
    return f"The graph, {kind}: {count}."


def _traffic(sent: NDArray[np.float64]) -> Figure:
    """The kilobytes of every link as a heat map; of a large fleet, those between groups of nodes."""
    matrix, size = blocks(sent)
    if size == 1:
        return Figure(draw_matrix(matrix, "to", "from", "kB"), "Bytes sent over each link in the whole run.")
    names = (f"to, {size} nodes each", f"from, {size} nodes each")
    return Figure(draw_matrix(matrix, *names, "kB"), f"Bytes sent in the whole run, from {size} nodes to {size} each.")


def _link_table(links: Sequence[LinkTraffic]) -> Table:
    """The links, with a column for each class of messages that there is."""
    classes = [name for name in NOT_DELIVERED if any(getattr(link.counts, name) for link in links)]
    rows = [
        [
            f"{link.edge[0]} → {link.edge[1]}",
            f"{link.counts.sent:,}",
            format_bytes(link.nbytes),
            *(_part(getattr(link.counts, name), link.counts.sent) for name in classes),
            "–" if link.delay_s is None else f"{link.delay_s * 1e3:.3g} ms",
        ]
        for link in links[:MOST_ROWS]
    ]
    which = "Every link" if len(links) <= MOST_ROWS else f"{MOST_ROWS} of {len(links)} links"
    order = "those that lost most first, then those that carried most" if links[0].counts.lost else "by bytes"
    return Table(("link", "messages", "bytes", *classes, "median delay"), rows, f"{which}, {order}.")


def _part(number: int, of: int) -> str:
    return f"{number:,} ({number / of:.1%})" if number else "0"


def _rule_table(rules: Sequence[Json]) -> Table:
    rows = [
        [rule["of"], rule["key"], rule["rule"], say(rule["figures"])]
        + (["links"] if rule["event"] is None else [f"events[{rule['event']}]"])
        for rule in rules
    ]
    caption = "The rules of links, and what they come to in the long run."
    return Table(("of", "what", "rule", "comes to", "by"), rows, caption, folded=len(rows) > MOST_ROWS)


def _fate_table(run: Run) -> Table:
    """Every class that there is, its reasons below it, and what it means."""
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
    """Who got which data."""
    partition = run.partition
    if partition is None:
        return None
    counts = np.asarray(partition["counts"], dtype=float)
    names = [str(name) for name in partition["classes"]]
    if len(counts) <= MOST_BARS and len(names) <= 20:
        svg = draw_bars(dict(zip(names, counts.T, strict=True)), "client", "samples")
    else:
        svg = draw_matrix(counts.T, "client", "class", "samples", wide=True)
    sizes = counts.sum(axis=1)
    lede = f"{sizes.sum():,.0f} training samples; a client has {sizes.min():,.0f} to {sizes.max():,.0f} of them."
    return Section("Who got which data", lede, [Figure(svg, "Samples of each class at each client.", wide=True)])


def timeline(run: Run) -> Section | None:
    """What happened, when, and to whom."""
    bands = find_bands(run)
    kinds = run.rows(
        "SELECT kind, list(at_s ORDER BY at_s, node), list(coalesce(node, -1) ORDER BY at_s, node) FROM events "
        f"WHERE kind NOT IN ? AND NOT {SCHEDULED} GROUP BY kind ORDER BY min(at_s), kind",
        [ROUTINE],
    )
    if not kinds and not bands:
        return None
    first = run.rows(
        f"SELECT at_s, node, round, kind, details FROM events WHERE kind NOT IN ? AND NOT {SCHEDULED} "
        f"ORDER BY {ORDER['events']}, details LIMIT ?",
        [ROUTINE, MOST_EVENTS],
    )
    told = [
        (at_s, [f"{at_s:.3f} s", "fleet" if node is None else str(node), str(round), kind, _details(details)])
        for at_s, node, round, kind, details in first
    ]
    of_links = [row for band in bands for row in band.listed()]
    rows = [cells for _, cells in sorted((*told, *of_links), key=lambda row: row[0])[:MOST_EVENTS]]
    total = sum(len(times) for _, times, _ in kinds) + len(of_links)
    title = f"All {total} events" if total <= MOST_EVENTS else f"The first {MOST_EVENTS} of {total:,} events"
    marks = [Mark(*row) for row in kinds if row[0] not in OF_THE_MACHINE]
    caption = "Events over time, a row per node." + (" Below, what the schedule did to links." if bands else "")
    drawn = [Figure(draw_timeline(marks, _num_nodes(run), bands), caption, wide=True)] if marks or bands else []
    return Section(
        "What happened when",
        figures=drawn,
        tables=[Table(("at", "node", "round", "event", "details"), rows, title, folded=True)],
    )


def _details(text: str | None) -> str:
    details = read_details(text)
    return ", ".join(f"{key}: {_some(value) if isinstance(value, list) else value}" for key, value in details.items())


def _some(items: Sequence[object], most: int = 8) -> str:
    shown = ", ".join(str(item) for item in items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def _num_nodes(run: Run) -> int:
    """How many nodes the run has, by its graph or by whoever left a row."""
    highest: NodeId = run.rows(
        "SELECT coalesce(max(n), 0) FROM (SELECT max(node) AS n FROM metrics UNION ALL SELECT max(node) FROM events "
        "UNION ALL SELECT max(greatest(src, dst)) FROM messages)"
    )[0][0]
    return max(highest + 1, run.graph["num_nodes"] if run.graph else 0)


SECTIONS: tuple[Callable[[Run], Section | None], ...] = (
    deaths,
    stalls,
    learning,
    time_spent,
    graph_and_links,
    labels,
    timeline,
)
