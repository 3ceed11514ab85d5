"""The state of a replayed fleet at one moment, as text for a terminal and as HTML for a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from netdfl.diagnosis.words import for_whom, listed
from netdfl.replaying.happenings import seconds
from netdfl.replaying.moment import MessageMoment, Moment, NodeMoment

MOST_ROWS = 40
NODE_HEAD = ("node", "state", "round", "step", "waits for", "since", "mailbox", "weight", "norm", "distance")
FLIGHT_HEAD = ("message", "kind", "round", "sent", "what becomes of it")


def moment_text(moment: Moment) -> str:
    """Return a fleet's state at one moment as text: time, nodes, messages in flight, next events, diagnosis."""
    parts = [headline(moment), nodes_text(moment), flying_text(moment), coming_text(moment, 5), waits_text(moment)]
    return "\n\n".join(part for part in parts if part)


def headline(moment: Moment) -> str:
    """Return one line with a moment's virtual time, event-loop step, highest round and consensus distance."""
    over = ", the end of the run" if moment.ended else ""
    distance = "" if math.isnan(moment.consensus_distance) else f", consensus distance {moment.consensus_distance:.4g}"
    return f"{seconds(moment.at_ns)} (step {moment.step}{over}): round {moment.round}{distance}"


def nodes_text(moment: Moment) -> str:
    """Return the nodes' state at a moment as a text table with a line per node."""
    return table(NODE_HEAD, [_node(node) for node in moment.nodes], "nodes")


def flying_text(moment: Moment) -> str:
    """Return a text table with a line per message in flight."""
    if not moment.flying:
        return "no message is under way"
    return table(FLIGHT_HEAD, [_flight(message) for message in moment.flying], "messages")


def coming_text(moment: Moment, most: int = MOST_ROWS) -> str:
    """Return a text table of the events that are due next, at most `most` of them."""
    if not moment.coming:
        return "nothing is due"
    rows = [f"  {seconds(event.at_ns):>14}  {event.what}" for event in moment.coming[:most]]
    more = len(moment.coming) - most
    return "\n".join(["due next:", *rows, *([f"  and {more} more"] if more > 0 else [])])


def waits_text(moment: Moment) -> str:
    """Return as text which node waits for which, and the diagnosis of stalls."""
    by_node: dict[int, list[int]] = {}
    for node, source in moment.waits:
        by_node.setdefault(node, []).append(source)
    graph = [f"  {node} -> {', '.join(map(str, sources))}" for node, sources in sorted(by_node.items())]
    head = "who waits for whom:" if graph else "nobody waits"
    shown = [*graph[:MOST_ROWS], *([f"  and {len(graph) - MOST_ROWS} more"] if len(graph) > MOST_ROWS else [])]
    found = [f"diagnosis: {finding.text}" for finding in moment.findings]
    return "\n".join([head, *shown, *found])


def news_text(moment: Moment, most: int = 10) -> str:
    """Return the latest events as lines, at most `most` of them."""
    return "\n".join(f"  {seconds(news.at_ns):>14}  {news.text}" for news in list(moment.news)[-most:])


def moment_html(moment: Moment) -> str:
    """Return a fleet's state at one moment as HTML for a notebook."""
    nodes = _html(NODE_HEAD, [_node(node) for node in moment.nodes])
    flights = _html(FLIGHT_HEAD, [_flight(message) for message in moment.flying])
    rest = "\n".join(filter(None, [coming_text(moment, 5), waits_text(moment)]))
    return f"<p>{escape(headline(moment))}</p>{nodes}{flights}<pre>{escape(rest)}</pre>"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], what: str = "rows") -> str:
    """Return a table of minimal width, without columns that are empty in every row.

    It shows at most `MOST_ROWS` rows; a line below counts the others, which it calls `what`.
    """
    shown = rows[:MOST_ROWS]
    kept = [i for i in range(len(head)) if any(row[i] for row in shown)]
    lines = [[head[i] for i in kept], *([row[i] for i in kept] for row in shown)]
    wide = [max(len(line[i]) for line in lines) for i in range(len(kept))]
    told = ["  ".join(cell.ljust(width) for cell, width in zip(line, wide, strict=True)).rstrip() for line in lines]
    more = len(rows) - len(shown)
    return "\n".join([*told, *([f"and {more} more {what}"] if more else [])])


def _html(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows[:MOST_ROWS])
    return f"<table><tr>{_cells('th', head)}</tr>{body}</table>"


def _cells(tag: str, cells: Iterable[str]) -> str:
    return "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)


def _node(node: NodeMoment) -> tuple[str, ...]:
    now, wait = node.now, node.now.wait
    unread = f"{len(node.unread)}: {listed([f'{s} (r{r})' for s, r, _ in node.unread], most=4)}" if node.unread else ""
    return (
        str(now.node),
        str(now.state),
        str(now.round),
        f"{now.step + 1} of {now.steps}" if now.steps > 1 else "",
        "" if wait is None else for_whom(wait),
        seconds(now.since_ns if wait is None else wait.since_ns),
        unread,
        "" if node.weight is None else f"{node.weight:.4g}",
        _figure(node.norm),
        _figure(node.distance),
    )


def _flight(message: MessageMoment) -> tuple[str, ...]:
    number = "" if message.number is None else f" #{message.number}"
    again = f", attempt {message.attempt}" if message.attempt else ""
    return (
        f"{message.src}->{message.dst}{number}",
        str(message.kind),
        f"{message.round}.{message.step}{again}",
        seconds(message.sent_ns),
        message.way,
    )


def _figure(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
