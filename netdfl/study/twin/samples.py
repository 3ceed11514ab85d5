"""Times in a record: how long messages of which size took, and how long nodes computed.

A message takes a latency, and the time of some bytes at a rate. Where its link has a rate of its own, these are its own
bytes. Where all that a node sends at once shares its uplink, they are for each other message the lesser of the two
sizes: of flows that begin together and share equally, one of s bytes is through when each other has had the lesser of s
and its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netdfl.core.errors import InputError
from netdfl.record.run import Run

Floats = NDArray[np.float64]
TOGETHER_S = 2e-3
"""Messages of a node whose sendings are no further apart were sent together."""
LARGE = 0.05
"""Messages below this share of the largest one do not keep an uplink busy."""
LEAST = 8
"""The fewest messages, or rounds, from which something is fitted."""

_MESSAGES = (
    "SELECT src, dst, round, nbytes, sent_s, arrived_s FROM messages WHERE attempt = 0 AND fate LIKE 'delivered%' "
    "AND arrived_s IS NOT NULL AND src <> dst AND kind NOT IN ('heartbeat', 'probe') ORDER BY src, sent_s, dst, nbytes"
)
_ROUNDS = (
    "SELECT node, round, "
    "max(value) FILTER (name = 'round_s') - coalesce(max(value) FILTER (name = 'wait_s'), 0) AS busy "
    "FROM metrics WHERE node IS NOT NULL AND name IN ('round_s', 'wait_s') GROUP BY node, round "
    "HAVING count(*) FILTER (name = 'round_s') > 0 ORDER BY node, round"
)


@dataclass(frozen=True)
class RecordedTimes:
    """Messages and rounds of a record, a column each; `own` and `shared` are the bytes of both readings.

    `latent` is 1 where the delay has the link's latency, and 0 where it is only the time of the bytes.
    `busy` are the seconds of each round in which its node, `busy_node`, did not wait.
    """

    src: NDArray[np.int64]
    dst: NDArray[np.int64]
    round: NDArray[np.int64]
    own: Floats
    shared: Floats
    delay: Floats
    latent: Floats
    busy_node: NDArray[np.int64]
    busy_round: NDArray[np.int64]
    busy: Floats

    def messages(self, which: NDArray[np.bool_]) -> RecordedTimes:
        """Return the samples with only some of the messages."""
        columns = ("src", "dst", "round", "own", "shared", "delay", "latent")
        return replace(self, **{name: getattr(self, name)[which] for name in columns})


def read_samples(run: Run) -> RecordedTimes:
    """Return the samples of a run.

    A message sent while an earlier one of its link is under way begins when that one is through. Its delay then counts
    from the arrival of the earlier one, and has no latency.

    Raises InputError where the record has too few messages or rounds.
    """
    if not run.sampling.is_all:
        raise InputError(f"{run.path} recorded only some messages; record all of them (record: {{messages: all}})")
    rows, rounds = run.columns(_MESSAGES), run.columns(_ROUNDS)
    if len(rows["src"]) < LEAST or len(rounds["node"]) < LEAST:
        found = f"{len(rows['src'])} delivered messages and {len(rounds['node'])} rounds of nodes"
        raise InputError(f"{run.path} has {found}; a fit needs at least {LEAST} of each, so let it run longer")
    shared, since, latent, fits = _begun(rows)
    src, dst, number = (rows[name][fits].astype(np.int64) for name in ("src", "dst", "round"))
    return RecordedTimes(
        src=src,
        dst=dst,
        round=number,
        own=rows["nbytes"][fits],
        shared=shared[fits],
        delay=(rows["arrived_s"] - since)[fits],
        latent=latent[fits],
        busy_node=rounds["node"].astype(np.int64),
        busy_round=rounds["round"].astype(np.int64),
        busy=np.maximum(rounds["busy"], 0.0),
    )


def _begun(rows: dict[str, Floats]) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """Return for each message the bytes that it waits for on a shared uplink, when it began, and two flags.

    The first flag is 1.0 where the delay since then has the latency, the second whether the beginning is known.
    """
    src, dst, sent, nbytes, arrived = (rows[name] for name in ("src", "dst", "sent_s", "nbytes", "arrived_s"))
    large = nbytes >= LARGE * nbytes.max()
    begins = np.flatnonzero(np.r_[True, (np.diff(src) != 0) | (np.diff(sent) > TOGETHER_S)])
    shared, since = np.zeros(len(src)), sent.copy()
    latent, fits = np.ones(len(src)), np.ones(len(src), dtype=bool)
    through: dict[tuple[float, float], float] = {}
    busy_until: dict[float, float] = {}
    for begin, end in zip(begins, [*begins[1:], len(src)], strict=True):
        sizes, node = nbytes[begin:end], src[begin]
        shared[begin:end] = np.minimum(sizes[:, None], sizes[None]).sum(axis=1)
        if large[begin:end].any():
            fits[begin:end] = large[begin:end]
        if busy_until.get(node, -np.inf) > sent[begin]:
            before = np.asarray([through.get((node, dst[place]), -np.inf) for place in range(begin, end)])
            fits[begin:end] = large[begin:end] & bool((before > sent[begin]).all())
            since[begin:end], latent[begin:end] = np.where(fits[begin:end], before, sent[begin:end]), 0.0
        for place in range(begin, end):
            if large[place]:
                through[node, dst[place]] = arrived[place]
                busy_until[node] = max(busy_until.get(node, -np.inf), arrived[place])
    return shared, since, latent, fits
