"""Links whose messages took far longer or shorter than fitted; a fit has one latency and rate for all of a sender.

The fit leaves out messages that were sent while only some of their sender's links were busy, as it is not known what
they shared. Most messages of a slow link are such ones, so that it hardly affects the fit. Here they count, with
bounds: while a message passes a shared uplink, each other link in use takes as many bytes at most, and none at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from netdfl.record.run import Run
from netdfl.study.twin.fitting import BITS, UNSURE_S, Fit
from netdfl.study.twin.samples import LARGE, LEAST, MESSAGES, Floats

Link: TypeAlias = tuple[int, int]
"""The sender and the receiver."""
FAR = 1.5
"""A link is unlike its fit if three of four messages took this many times as long as fitted, or as many times less."""
NEAR = 0.005
"""This share of the mean time is added to the fitted and to the recorded time before the two are compared."""


def unlike_links(run: Run, found: Fit) -> dict[Link, float]:
    """Return the links of a run whose messages took far longer or shorter than the fit says.

    Each comes with the median ratio of a message's time to the fitted one (its nearer bound, where it has bounds).
    """
    rows = run.columns(MESSAGES)
    large = rows["nbytes"] >= LARGE * rows["nbytes"].max()
    room = NEAR * float((rows["arrived_s"] - rows["sent_s"]).mean()) + UNSURE_S
    unlike: dict[Link, float] = {}
    for src in np.unique(rows["src"]).astype(int).tolist():
        mine = {name: rows[name][(rows["src"] == src) & large] for name in ("dst", "nbytes", "sent_s", "arrived_s")}
        for dst, took, least, most in _bounds(src, mine, found):
            if len(took) < LEAST:
                continue
            longer, shorter = (took + room) / (most + room), (took + room) / (least + room)
            if np.quantile(longer, 0.25) >= FAR:
                unlike[src, dst] = float(np.median(longer))
            elif np.quantile(shorter, 0.75) * FAR <= 1:
                unlike[src, dst] = float(np.median(shorter))
    return unlike


def _bounds(src: int, rows: dict[str, Floats], found: Fit) -> Iterator[tuple[int, Floats, Floats, Floats]]:
    """Yield each receiver of a sender, with its messages' times, and the least and the most times that are fitted.

    All times are in s, one for each message to this receiver.
    """
    latency, rate = found.by_node.get(src, found.whole)
    by_dst = {int(dst): np.flatnonzero(rows["dst"] == dst) for dst in np.unique(rows["dst"])}
    for dst, mine in by_dst.items():
        sent, arrived, nbytes = (rows[name][mine] for name in ("sent_s", "arrived_s", "nbytes"))
        before = np.r_[-np.inf, np.maximum.accumulate(arrived)[:-1]]
        since = np.maximum(sent, before)
        busy = np.ones(len(mine))
        for other in (each for key, each in by_dst.items() if key != dst and found.shared == "uplink"):
            begun = np.searchsorted(rows["sent_s"][other], arrived)
            busy += begun > np.searchsorted(np.sort(rows["arrived_s"][other]), since, side="right")
        alone = np.zeros(len(mine)) if rate is None else BITS * nbytes / rate.value
        first = latency.value * (sent >= before)
        yield dst, arrived - since, first + alone, first + alone * busy
