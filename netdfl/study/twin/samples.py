"""The times in a run's record: how long messages of which size took, and how long nodes computed.

The delay of a message is a latency, plus the time of some number of bytes at a rate. If each link has a rate of its
own, these are the message's own bytes. If a node's uplink is shared by all messages that it sends at once, there are
more: for each of the other messages, the smaller of the two sizes is added. The reason is that flows share equally:
when a message of s bytes is through, every other one has had s bytes, or all of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from netdfl.core.errors import InputError
from netdfl.record.run import Run

Floats = NDArray[np.float64]
TOGETHER_S = 2e-3
"""Messages of a node count as sent together if they follow each other within this many seconds."""
LARGE = 0.05
"""Messages below this share of the largest message's size do not keep an uplink busy."""
LEAST = 8
"""The smallest number of messages, or of rounds, to which something is fitted."""

MESSAGES = (
    "SELECT src, dst, round, nbytes, sent_s, arrived_s FROM messages WHERE attempt = 0 AND fate LIKE 'delivered%' "
    "AND arrived_s IS NOT NULL AND src <> dst AND kind NOT IN ('heartbeat', 'probe') ORDER BY src, sent_s, dst, nbytes"
)
"""The query of the messages whose times count."""
_ROUNDS = (
    "SELECT node, round, "
    "max(value) FILTER (name = 'round_s') - coalesce(max(value) FILTER (name = 'wait_s'), 0) AS busy "
    "FROM metrics WHERE node IS NOT NULL AND name IN ('round_s', 'wait_s') GROUP BY node, round "
    "HAVING count(*) FILTER (name = 'round_s') > 0 ORDER BY node, round"
)


@dataclass(frozen=True)
class RecordedTimes:
    """Messages and rounds of a record, as columns with a value for each message, or for each round of a node.

    Attributes:
        src: the sender.
        dst: the receiver.
        round: the round of the message.
        own: the message's own bytes.
        shared: the bytes that pass a shared uplink until the message is through.
        delay: the delay in s.
        latent: 1 if the delay includes the latency, 0 if it is the time of the bytes alone.
        busy_node: the node of each round.
        busy_round: the number of each round.
        busy: the seconds of each round in which the node did not wait.
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
        """Return these samples with only the messages for which `which` is true, and with all rounds."""
        columns = ("src", "dst", "round", "own", "shared", "delay", "latent")
        return replace(self, **{name: getattr(self, name)[which] for name in columns})


def read_samples(run: Run) -> RecordedTimes:
    """Return the delays of messages and the compute times in a run's record.

    A message that is sent while an earlier one is under way on its link begins when the earlier one has arrived. Its
    delay counts from then, without the latency.

    Raises InputError if the record has too few messages or rounds.
    """
    if not run.sampling.is_all:
        raise InputError(f"{run.path} recorded only some messages; record all of them (record: {{messages: all}})")
    rows, rounds = run.columns(MESSAGES), run.columns(_ROUNDS)
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
    """Return, for each message, bytes on a shared uplink, the start of its transfer in s, and two flags.

    The bytes are those that pass the uplink until the message is through. The first flag is 1.0 if the delay from the
    start of the transfer includes the latency, else 0.0. The second says whether the start is known.
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
