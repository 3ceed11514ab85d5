"""Partitions of training samples over clients. No sample is lost or given twice.

A partition is a function `(labels, num_clients, streams, /, *, ...)` from the labels (N,) to one sorted array of
indices per client.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.given_files import given_text
from netdfl.core.rng import Streams
from netdfl.core.tables import by_name
from netdfl.core.units import PositiveFloat, PositiveInt

Indices: TypeAlias = NDArray[np.int64]
Labels: TypeAlias = NDArray[np.integer[Any]]
Partition: TypeAlias = list[Indices]

_SINKHORN_STEPS = 1000


def iid(labels: Labels, num_clients: int, streams: Streams, /) -> Partition:
    """Shuffle and split: every client sees the same distribution."""
    _require_samples(len(labels), num_clients)
    return _sorted(np.array_split(streams.rng("partition").permutation(len(labels)), num_clients))


def dirichlet(labels: Labels, num_clients: int, streams: Streams, /, *, alpha: PositiveFloat = 0.3) -> Partition:
    """Each client draws its class mix from Dir(alpha); sizes are equal (to within one sample).

    Samples are dealt one by one: a random client that is not full yet takes a class drawn from its
    mix, renormalized over the classes that still have samples. So nothing is lost or doubled, where
    the published codes stall (DisPFL) or refill a class with duplicates (FL-Simulator).
    """
    _require_samples(len(labels), num_clients)
    rng = streams.rng("partition")
    classes, class_of, counts = _classes(labels)
    log_mix = _log_gamma(rng, alpha, (num_clients, len(classes)))
    clients = _dealing_order(rng, _equal_sizes(len(labels), num_clients))
    drawn = _draw_classes(rng, log_mix, clients, counts)
    samples = np.empty(len(labels), dtype=np.int64)
    samples[np.argsort(drawn, kind="stable")] = _shuffled_by_class(rng, class_of)
    return _sorted([samples[clients == client] for client in range(num_clients)])


def dirichlet_per_class(
    labels: Labels, num_clients: int, streams: Streams, /, *, alpha: PositiveFloat = 0.3
) -> Partition:
    """Each class is spread over the clients by Dir(alpha), balanced to equal client sizes (DynaFed).

    The shares are scaled, rows and columns in turn, until every class is used up and every client
    has its size; what is left by rounding is filled in.
    """
    _require_samples(len(labels), num_clients)
    rng = streams.rng("partition")
    classes, class_of, counts = _classes(labels)
    shares = _log_gamma(rng, alpha, (len(classes), num_clients))
    table = _balanced(rng, shares, counts, _equal_sizes(len(labels), num_clients))
    clients = np.concatenate([np.repeat(np.arange(num_clients), row) for row in table])
    samples = _shuffled_by_class(rng, class_of)
    return _sorted([samples[clients == client] for client in range(num_clients)])


def pathological(
    labels: Labels, num_clients: int, streams: Streams, /, *, classes_per_client: PositiveInt = 2
) -> Partition:
    """Each client holds a few random classes only; a class is split equally over its holders.

    Every class gets as many holders as any other, or one more, so sizes are equal where
    `num_clients * classes_per_client` is a multiple of the number of (equally large) classes.
    """
    _require_samples(len(labels), num_clients)
    rng = streams.rng("partition")
    classes, class_of, counts = _classes(labels)
    holders = _class_holders(rng, num_clients, classes_per_client, len(classes))
    by_class = np.split(_shuffled_by_class(rng, class_of), np.cumsum(counts)[:-1])
    parts: list[list[Indices]] = [[] for _ in range(num_clients)]
    for members, holding in zip(by_class, holders, strict=True):
        for client, share in zip(holding, np.array_split(members, len(holding)), strict=True):
            parts[client].append(share)
    return _sorted([np.concatenate(part) for part in parts])


def shards(labels: Labels, num_clients: int, streams: Streams, /, *, shards_per_client: PositiveInt = 2) -> Partition:
    """Sort by label, cut into equal shards, and give each client the same number of random ones."""
    num_shards = num_clients * shards_per_client
    if num_shards > len(labels):
        raise ValueError(
            f"{num_clients} clients with {shards_per_client} shards each need {num_shards} samples, the data has "
            f"{len(labels)}: use fewer clients or a smaller shards_per_client"
        )
    rng = streams.rng("partition")
    _, class_of, _ = _classes(labels)
    pieces = np.array_split(_shuffled_by_class(rng, class_of), num_shards)
    given = rng.permutation(num_shards).reshape(num_clients, shards_per_client)
    return _sorted([np.concatenate([pieces[shard] for shard in row]) for row in given])


def by_column(labels: Labels, num_clients: int, streams: Streams, /, *, column: str) -> Partition:
    """Give each value of a column of the data (a writer, a hospital) to one client as a whole.

    Values are dealt largest first, each to the client with the fewest examples; `labels` are the column's values.
    """
    values, value_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(values) < num_clients:
        what = f"column {column!r} has {len(values)} values for {num_clients} clients"
        raise ValueError(f"{what}: use at most {len(values)} clients, or another column")
    held = np.zeros(num_clients, np.int64)
    client_of = np.empty(len(values), np.int64)
    for value in np.lexsort((streams.rng("partition").random(len(values)), -counts)):
        client_of[value] = held.argmin()
        held[client_of[value]] += counts[value]
    return _sorted([np.flatnonzero(client_of[value_of] == client) for client in range(num_clients)])


def given(labels: Labels, num_clients: int, streams: Streams, /, *, file: str) -> Partition:
    """Take the partition from a JSON file: for each client, a list of the indices of its training examples."""
    try:
        parts = [np.asarray(part) for part in json.loads(given_text(file))]
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{file} is no list of lists of numbers: {error}") from error
    if len(parts) != num_clients:
        raise ValueError(f"{file} has {len(parts)} lists for {num_clients} clients: give one for each")
    for client, part in enumerate(parts):
        whole = part.ndim == 1 and len(part) > 0 and np.issubdtype(part.dtype, np.integer)
        if not whole or part.min() < 0 or part.max() >= len(labels):
            raise ValueError(f"{file}: the list of client {client} is none of numbers from 0 to {len(labels) - 1}")
    return _sorted(parts)


PARTITIONS = by_name(iid, dirichlet, dirichlet_per_class, pathological, shards, by_column, given)
"""Every partition by name: a function `(labels, num_clients, streams, /, *, ...)`."""


def label_counts(labels: Labels, parts: Sequence[Indices], num_classes: int) -> NDArray[np.int64]:
    """Return the number of samples of each class at each client, shape (clients, num_classes)."""
    return np.stack([np.bincount(labels[part], minlength=num_classes) for part in parts]).astype(np.int64)


def _require_samples(num_samples: int, num_clients: int) -> None:
    if num_clients > num_samples:
        raise ValueError(f"{num_clients} clients can't share {num_samples} samples: use at most {num_samples} clients")


def _sorted(parts: Sequence[Indices]) -> Partition:
    empty = [client for client, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise ValueError(f"clients {empty} would get no sample: use fewer clients, or more classes for each")
    return [np.sort(part).astype(np.int64) for part in parts]


def _classes(labels: Labels) -> tuple[Indices, Indices, Indices]:
    """Return the occurring classes, the index of each sample's class among them, and the class sizes."""
    classes, class_of, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return classes.astype(np.int64), class_of.astype(np.int64), counts.astype(np.int64)


def _equal_sizes(num_samples: int, num_clients: int) -> Indices:
    return num_samples // num_clients + (np.arange(num_clients) < num_samples % num_clients).astype(np.int64)


def _shuffled_by_class(rng: np.random.Generator, class_of: Indices) -> Indices:
    """Return all samples, class by class, in random order within a class."""
    return np.lexsort((rng.random(len(class_of)), class_of))


def _log_gamma(rng: np.random.Generator, alpha: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Draw logarithms of Gamma(alpha) variables, which are unnormalized Dirichlet shares without underflow.

    Gamma(alpha) = Gamma(alpha + 1) * U^(1 / alpha) in distribution.
    """
    boost = np.log1p(-rng.random(shape)) / alpha
    return np.asarray(np.log(rng.standard_gamma(alpha + 1, shape)) + boost)


def _dealing_order(rng: np.random.Generator, sizes: Indices) -> Indices:
    """Return an order in which clients receive samples one by one, as if a random client that is not full were picked.

    It is computed without a loop, with the same distribution: independent unit-rate Poisson arrivals at every client,
    each cut off when the client is full, merged by time.
    """
    arrivals = np.cumsum(rng.standard_exponential((len(sizes), int(sizes.max()))), axis=1)
    within = np.arange(arrivals.shape[1]) < sizes[:, None]
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return np.asarray(owners[np.argsort(arrivals[within], kind="stable")])


def _draw_classes(rng: np.random.Generator, log_mix: NDArray[np.float64], clients: Indices, counts: Indices) -> Indices:
    """Draw a class for each pick of a client in turn, by the client's mix over classes that have samples left.

    The set of classes in stock only changes when a class runs out, so the picks up to that point are drawn at once,
    in at most as many draws as classes.
    """
    drawn = np.empty(len(clients), dtype=np.int64)
    left, start = counts.copy(), 0
    while start < len(clients):
        picks = _draw(rng, np.where(left > 0, log_mix, -np.inf), clients[start:])
        asked = np.bincount(picks, minlength=len(left))
        by_class = np.argsort(picks, kind="stable")
        first = np.cumsum(asked) - asked
        out = np.flatnonzero((left > 0) & (asked >= left))
        stop = 1 + int(by_class[first[out] + left[out] - 1].min())
        drawn[start : start + stop] = picks[:stop]
        left -= np.bincount(picks[:stop], minlength=len(left))
        start += stop
    return drawn


def _draw(rng: np.random.Generator, log_mix: NDArray[np.float64], clients: Indices) -> Indices:
    """Draw a class for each of `clients` by a single search in their cumulative class mixes.

    The uniform numbers have 32 bits, so that client + u is exact.
    """
    mix = np.exp(log_mix - log_mix.max(axis=1, keepdims=True))
    steps = np.cumsum(mix, axis=1)
    steps = steps / steps[:, -1:] + np.arange(len(mix))[:, None]
    u = rng.integers(2**32, size=len(clients)) * 2.0**-32
    return np.asarray(np.searchsorted(steps.ravel(), clients + u, side="right") - clients * mix.shape[1])


def _balanced(rng: np.random.Generator, log_shares: NDArray[np.float64], rows: Indices, columns: Indices) -> Indices:
    """Return a table of whole numbers with these row and column sums, close to the scaled shares.

    The shares are scaled by Sinkhorn's method in logarithms. Sums that are still too large are scaled down, missing
    ones filled in by the northwest-corner rule, and the entries rounded with the sums preserved.
    """
    logs = log_shares
    for _ in range(_SINKHORN_STEPS):
        logs = logs + (np.log(columns) - np.logaddexp.reduce(logs, axis=0))
        short = np.log(rows) - np.logaddexp.reduce(logs, axis=1)
        logs = logs + short[:, None]
        if np.abs(short * rows).max() < 0.5:
            break
    shares = np.exp(logs)
    shares *= np.minimum(1, columns / shares.sum(axis=0))
    shares *= np.minimum(1, rows / shares.sum(axis=1))[:, None]
    shares += _corner_fill(rows - shares.sum(axis=1), columns - shares.sum(axis=0))
    return _rounded(rng, shares, rows, columns)


def _corner_fill(rows: NDArray[np.float64], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a table with these row and column sums (of equal totals) by the northwest-corner rule."""
    row_ends, column_ends = np.cumsum(rows), np.cumsum(columns)
    low = np.maximum.outer(row_ends - rows, column_ends - columns)
    return np.asarray(np.maximum(np.minimum.outer(row_ends, column_ends) - low, 0.0))


def _rounded(rng: np.random.Generator, shares: NDArray[np.float64], rows: Indices, columns: Indices) -> Indices:
    """Round each of `shares` down or up so that the row and column sums are `rows` and `columns`.

    The columns are filled up in turn, each by 1 in the rows whose sums lack the most, which always succeeds (Gale and
    Ryser).
    """
    table = np.floor(shares).astype(np.int64)
    left = rows - table.sum(axis=1)
    for client, missing in enumerate(columns - table.sum(axis=0)):
        neediest = np.lexsort((rng.random(len(left)), -left))[:missing]
        table[neediest, client] += 1
        left[neediest] -= 1
    return table


def _class_holders(
    rng: np.random.Generator, num_clients: int, classes_per_client: int, num_classes: int
) -> list[list[int]]:
    """Return the clients that hold each class: each client takes the least held classes, ties at random."""
    if classes_per_client > num_classes:
        raise ValueError(
            f"classes_per_client is {classes_per_client}, the data has {num_classes} classes: use at most {num_classes}"
        )
    if num_clients * classes_per_client < num_classes:
        raise ValueError(
            f"{num_clients} clients with {classes_per_client} classes each can't hold all {num_classes} classes, and "
            f"samples would be lost: use at least {-(-num_classes // num_clients)} classes per client"
        )
    holders: list[list[int]] = [[] for _ in range(num_classes)]
    for client in range(num_clients):
        held = np.array([len(clients) for clients in holders])
        for chosen in np.lexsort((rng.random(num_classes), held))[:classes_per_client]:
            holders[chosen].append(client)
    return holders
