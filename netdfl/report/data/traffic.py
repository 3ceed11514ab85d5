"""Messages on a run's page: counts up to each moment, traffic and rules of each link, and single messages.

The class of a message says what became of it, such as delivered, late or lost.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from netdfl.core.fates import Fate, FateClass, FateKind
from netdfl.links.rules.figures import comes_to
from netdfl.links.selectors import Groups, is_edges, parse_edges
from netdfl.record.run import Run
from netdfl.report.data.frame import FIGURE, TIME, Floats, Frame, Made, Plain, TextColumn, shorten, whole

NUMBERS = {name: number for number, name in enumerate(FateClass)}
CLASS_NUMBER = f"""CASE split_part(fate, ':', 1) {
    " ".join(f"WHEN '{kind.value}' THEN {NUMBERS[Fate(kind).counts_as]}" for kind in FateKind)
} END"""
"""An SQL expression for the class of a message (such as delivered, late or lost), as its index in `FateClass`."""
CLASSES = tuple(name for name in FateClass if name is not FateClass.UNFINISHED)


def count_by_moment(run: Run, frame: Frame) -> Made:
    """Return, for each stop of the page's time slider, the messages and bytes sent by then, and messages by class.

    A message counts as sent at its first sending. It counts in its class from its arrival on, or at once if it never
    arrived. If a run recorded only some messages, a round's messages count once the fates of all of them are known.
    """
    if run.sampling.is_all:
        table, number, when, then = "messages", "1", "sent_s", "coalesce(arrived_s, sent_s)"
    else:
        table, number, when, then = "round_totals", "messages", "until_s", "until_s"
    when, then = ("round + 1", "round + 1") if frame.by_round else (when, then)
    rows = run.columns(
        f"SELECT {when} AS sent, {then} AS decided, {number} AS number, nbytes, {CLASS_NUMBER} AS class FROM {table}"
    )
    found: Made = {
        name: _up_to(frame, rows["sent"], rows[of]) for name, of in (("sent", "number"), ("nbytes", "nbytes"))
    }
    for name in CLASSES:
        of = rows["class"] == NUMBERS[name]
        if of.any():
            found[name.value] = _up_to(frame, rows["decided"][of], rows["number"][of])
    return found


def _up_to(frame: Frame, times: Floats, amounts: Floats) -> Plain:
    places = np.searchsorted(frame.moments, times)  # the first moment at or after each
    sums = np.bincount(places, amounts, minlength=len(frame.moments) + 1)
    return whole(np.cumsum(sums[: len(frame.moments)]))


MOST_LINKS = 12_000
MOST_MESSAGES = 20_000
_ORDER = "sent_s, src, dst, kind, round, step, attempt, epoch"


def links(run: Run, most: int | None = None) -> Made:
    """Return the traffic of at most `most` links, most losses first: its messages by how they ended, bytes, delays."""
    classes = ", ".join(
        f"coalesce(sum(messages) FILTER (class = {number}), 0)::BIGINT AS {name.value}"
        for name, number in NUMBERS.items()
    )
    table = run.columns(
        f"WITH counted AS (SELECT src, dst, sum(messages)::BIGINT AS sent, sum(nbytes)::BIGINT AS nbytes, {classes} "
        f"FROM (SELECT *, {CLASS_NUMBER} AS class FROM link_totals) GROUP BY src, dst), "
        "took AS (SELECT src, dst, min(arrived_s - sent_s) AS fastest, median(arrived_s - sent_s) AS median, "
        "quantile_cont(arrived_s - sent_s, 0.95) AS slow, "
        "max(coalesce(arrived_s, sent_s)) - min(sent_s) AS span FROM messages GROUP BY src, dst) "
        "SELECT counted.*, fastest, median, slow, span FROM counted LEFT JOIN took USING (src, dst) "
        f"ORDER BY {FateClass.LOST} DESC, nbytes DESC, src, dst",
    )
    total = len(table["src"])
    cut: dict[str, Floats] = {name: column[: most or MOST_LINKS] for name, column in table.items()}
    found: Made = {name: whole(cut[name]) for name in ("src", "dst", "sent", "nbytes")}
    found |= {name.value: whole(cut[name.value]) for name in FateClass if table[name.value].any()}
    if np.nansum(table["slow"]) > 0:
        found |= {name: shorten(cut[name], FIGURE) for name in ("fastest", "median", "slow", "span")}
    return found | {"total": total}


def rules(run: Run, traffic: Made) -> list[Made]:
    """Return the rules of the run's links (loss, delay and so on) as text, each with the indices of its links.

    They are indices into the columns of `traffic`, which the function `links` returned; None: all links.
    """
    told = run.result.get("link_rules") if run.finished else None
    if not told:
        return []
    edges = {edge: place for place, edge in enumerate(zip(traffic["src"], traffic["dst"], strict=True))}
    graph = run.graph
    groups = graph.get("groups", {}) if graph else {}
    size = graph["num_nodes"] if graph else 1 + max([0, *traffic["src"], *traffic["dst"]])
    return [
        {
            **{name: str(rule[name]) for name in ("of", "key", "rule")},
            "figures": {key: value for key, value in rule["figures"].items() if isinstance(value, int | float)},
            "words": comes_to(rule),
            "event": rule["event"],
            "links": _named(rule["of"], edges, groups, size),
        }
        for rule in told
    ]


def _named(of: str, edges: dict[tuple[int, int], int], groups: Groups, size: int) -> list[int] | None:
    if not is_edges(of):
        return None
    with suppress(ValueError):
        selector = parse_edges(of, groups, size)
        return [place for edge, place in edges.items() if edge in selector]
    return []


def messages(run: Run, frame: Frame) -> Made:
    """Return the run's messages in order of sending; if they are too many, a selection with more of the lost ones.

    In the result, `every` is 1 if all messages are there, else the number of sent messages for each one selected.
    `recorded` says which messages the run recorded, if not all.
    """
    ((sent, total),) = run.rows(
        "SELECT (SELECT coalesce(sum(messages), 0)::BIGINT FROM round_totals), (SELECT count(*) FROM messages)"
    )
    every = max(1, -(-total // MOST_MESSAGES))
    some = (
        f"SELECT * FROM (SELECT *, row_number() OVER (ORDER BY {_ORDER}) AS number FROM messages) "
        f"WHERE number % {every} = 0 OR (fate NOT LIKE 'delivered%' AND number % {max(1, every // 8)} = 0)"
        if every > 1
        else "FROM messages"
    )
    rows = run.rows(
        f"SELECT src, dst, kind, round, sent_s, arrived_s, fate, nbytes, attempt FROM ({some}) "
        f"ORDER BY {_ORDER.removesuffix(', epoch')} LIMIT {2 * MOST_MESSAGES}"
    )
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 9
    kinds, fates = TextColumn(), TextColumn()
    found: Made = {
        "src": columns[0],
        "dst": columns[1],
        "kind": kinds.places(columns[2]),
        "round": columns[3],
        "fate": fates.places(columns[6]),
        "nbytes": columns[7],
        "attempt": columns[8],
    }
    if not frame.by_round:
        found["sent"] = shorten(columns[4], TIME)
        found["arrived"] = shorten(columns[5], TIME)
    classes = [Fate.read(text).counts_as.value for text in fates.texts]
    found |= {"kinds": kinds.texts, "fates": fates.texts, "classes": classes}
    if not run.sampling.is_all:
        every = max(every, 2, -(-sent // max(1, total)))
        found["recorded"] = run.sampling.words
    return found | {"total": sent, "every": every}
