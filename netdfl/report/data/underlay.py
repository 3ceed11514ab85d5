"""The emulated underlay network on a run's page: sites, core links between them, their load, and who shares them.

The record has when each message was sent and arrived. Its bytes are spread evenly over that time, but not before the
edge's previous message had arrived. They are counted on the core links of the route in force at each moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from netdfl.record.forms import CoreLinkForm, UnderlayForm
from netdfl.record.run import Run
from netdfl.report.data.fleet import place_sites
from netdfl.report.data.frame import Floats, Frame, Made, shorten
from netdfl.report.words import some

MOST_DRAWN = 150
"""The most core links whose load is shown; each direction counts as one."""
MOST_SHARING = 12
BITS = 8
_ARRIVED = (
    "SELECT src, dst, nbytes, arrived_s, greatest(sent_s, coalesce(lag(arrived_s) OVER (PARTITION BY src, dst "
    "ORDER BY arrived_s, sent_s), sent_s)) AS begun_s, sent_s FROM messages "
    "WHERE arrived_s IS NOT NULL AND src <> dst ORDER BY arrived_s, src, dst"
)


def underlay(run: Run, frame: Frame) -> Made | None:
    """Return the sites and core links of `run`, with the load of each core link by moment; None without an underlay.

    A load is the share of the link's rate used since the previous moment; None if the rate is unlimited.
    """
    form = run.underlay
    if form is None:
        return None
    crossed = _Crossings(form, run.columns(_ARRIVED))
    carried = crossed.nbytes()
    drawn = _fullest(form, carried)[:MOST_DRAWN]
    narrow = ((run.result.get("time") or {}).get("bottleneck") or {}) if run.finished else {}
    at = place_sites(len(form["sites"]), [(link["src"], link["dst"]) for link in form["links"]])
    return {
        "sites": [name[:60] for name in form["sites"]],
        "nodes": _nodes(form),
        "x": shorten(at[:, 0], 4),
        "y": shorten(at[:, 1], 4),
        "links": [_link(form, number, crossed, carried, frame) for number in drawn],
        "total": len(form["links"]),
        "bottleneck": str(narrow.get("link", "")),
        "by_time": not frame.by_round and run.sampling.is_all,
    }


def _fullest(form: UnderlayForm, carried: Floats) -> list[int]:
    """Return the indices of the underlay's core links, the busiest first.

    The busiest link needs the most seconds at its rate to carry the bytes in `carried`; links without a rate follow, by
    bytes.
    """
    takes = [
        nbytes / link["rate_bps"] if link["rate_bps"] else 0.0
        for link, nbytes in zip(form["links"], carried, strict=True)
    ]
    return sorted(range(len(takes)), key=lambda number: (-takes[number], -carried[number], number))


def _nodes(form: UnderlayForm) -> list[str]:
    found: list[list[int]] = [[] for _ in form["sites"]]
    for node, site in enumerate(form["site_of"]):
        found[site].append(node)
    return [some(nodes, MOST_SHARING) for nodes in found]


def _link(form: UnderlayForm, number: int, crossed: _Crossings, carried: Floats, frame: Frame) -> Made:
    link: CoreLinkForm = form["links"][number]
    rate = link["rate_bps"]
    sharing = crossed.sharing(number)
    load = None if rate is None or frame.by_round else crossed.bits(number, frame.moments) / rate
    return {
        "src": link["src"],
        "dst": link["dst"],
        "rate_bps": rate,
        "latency_s": link["latency_s"],
        "loss": link["loss"],
        "down": link.get("down_s", []),
        "nbytes": int(carried[number]),
        "load": None if load is None else shorten(load, 3),
        "shared": some([f"{src} → {dst}" for src, dst in sharing], MOST_SHARING),
        "num_shared": len(sharing),
    }


class _Crossings:
    """The messages that arrived, and the core links of the underlay that each crossed.

    A message that was under way while the routes changed counts as several parts, one for each set of routes.
    """

    def __init__(self, form: UnderlayForm, rows: Mapping[str, Floats]) -> None:
        site_of = np.asarray(form["site_of"], dtype=int)
        known = (rows["src"] < len(site_of)) & (rows["dst"] < len(site_of))
        parts = _parts(form, {name: column[known] for name, column in rows.items()})
        self._form = form
        self._parts = parts
        src, dst = (site_of[parts[end].astype(int)] for end in ("src", "dst"))
        size = len(form["sites"])
        self._of = _by_link(form, (parts["routes"].astype(int) * size + src) * size + dst)

    def nbytes(self) -> Floats:
        """Return the bytes of all messages that each core link carried."""
        numbers = range(len(self._form["links"]))
        return np.asarray([self._parts["nbytes"][self._of.get(link, _NONE)].sum() for link in numbers])

    def sharing(self, link: int) -> list[tuple[int, int]]:
        """Return the edges (sender, receiver) whose messages crossed core link `link`, those with most bytes first."""
        src, dst, nbytes = (self._parts[name][self._of.get(link, _NONE)] for name in ("src", "dst", "nbytes"))
        edges, places = np.unique(np.stack([src, dst], axis=1).astype(int), axis=0, return_inverse=True)
        order = np.argsort(-np.bincount(places.ravel(), nbytes, minlength=len(edges)), kind="stable")
        return [(int(edge[0]), int(edge[1])) for edge in edges[order]]

    def bits(self, link: int, moments: Floats) -> Floats:
        """Return the mean rate in bit/s over core link `link` between each of `moments` and the previous one.

        Nothing crosses a link while it is cut: messages under way then wait.
        """
        begun, arrived, nbytes = (self._parts[name][self._of.get(link, _NONE)] for name in ("begun", "until", "nbytes"))
        cuts = self._form["links"][link].get("down_s", [])
        up = _up(moments, cuts)
        until = _carried_until(up, _up(begun, cuts), _up(arrived, cuts), BITS * nbytes)
        return np.concatenate(([0.0], np.diff(until) / np.diff(moments)))


_NONE = np.zeros(0, dtype=int)


def _parts(form: UnderlayForm, rows: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return the messages as columns, each message split into parts if routes changed while it was in flight.

    A part has bytes in proportion to its time. The column `routes` is the index of the routes in force from `begun` to
    `until`.
    """
    begun, arrived = rows["begun_s"], rows["arrived_s"]
    at_once, took = arrived <= begun, np.where(arrived > begun, arrived - begun, 1.0)
    since = [routes["since_s"] for routes in form["routes"]]
    found: list[dict[str, Floats]] = []
    for place, (first, last) in enumerate(pairwise([-np.inf, *since[1:], np.inf])):
        low, high = np.maximum(begun, first), np.minimum(arrived, last)
        here = np.where(at_once, (first <= begun) & (begun < last), low < high)
        share = np.where(at_once, 1.0, (high - low) / took)[here]
        part = {"src": rows["src"][here], "dst": rows["dst"][here], "nbytes": rows["nbytes"][here] * share}
        found.append(part | {"begun": low[here], "until": high[here], "routes": np.full(len(share), float(place))})
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _up(times: Floats, cuts: Sequence[Sequence[float | None]]) -> Floats:
    """Return, for each time, the seconds before it in which a link was not cut.

    `cuts` has begin and end of each cut.
    """
    spans = [(begin or 0.0, np.inf if end is None else end) for begin, end in cuts]
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return times - sum((np.clip(times, begin, end) - begin for begin, end in merged), np.zeros(len(times)))


def _by_link(form: UnderlayForm, pair_of: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Return, for each core link, the sorted indices of the parts of messages that crossed it.

    `pair_of` has a number for each part, which stands for the routes in force, the sender's site and the receiver's.
    """
    size = len(form["sites"])
    ways = {
        (place * size + src) * size + dst: way
        for place, routes in enumerate(form["routes"])
        for src, dst, way in routes["ways"]
    }
    order = np.argsort(pair_of, kind="stable")
    pairs, starts = np.unique(pair_of[order], return_index=True)
    found: dict[int, list[NDArray[np.int64]]] = {}
    for pair, places in zip(pairs.tolist(), np.split(order, starts[1:]), strict=False):
        for link in ways.get(pair, ()):
            found.setdefault(link, []).append(places)
    return {link: np.sort(np.concatenate(places)) for link, places in found.items()}


def _carried_until(moments: Floats, begun: Floats, arrived: Floats, amounts: Floats) -> Floats:
    """Return the amount carried up to each of `moments`; each of `amounts` flows evenly from `begun` to `arrived`."""
    until = np.zeros(len(moments))
    slow = arrived > begun
    slopes = amounts[slow] / (arrived - begun)[slow]
    for times, sign in ((begun[slow], 1.0), (arrived[slow], -1.0)):
        places = np.searchsorted(moments, times)
        until += moments * _added(places, sign * slopes, len(moments)) - _added(
            places, sign * slopes * times, len(moments)
        )
    until += _added(np.searchsorted(moments, arrived[~slow]), amounts[~slow], len(moments))
    return np.maximum(until, 0.0)


def _added(places: NDArray[np.int64], weights: Floats, count: int) -> Floats:
    """Return running sums: for each index below `count`, the sum of the weights placed there or at lower ones."""
    sums: Floats = np.cumsum(np.bincount(places, weights, minlength=count + 1).astype(float))[:count]
    return sums
