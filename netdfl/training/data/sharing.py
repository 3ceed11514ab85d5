"""The application of a partition to the data: by labels, by a column, or by given indices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netdfl.core.rng import Streams
from netdfl.training.data.own import SharedData
from netdfl.training.data.partitions import Partition
from netdfl.training.data.partitions import given as given_by_file
from netdfl.training.data.tables import refuse_empty


def share_out(data: SharedData, partition: Any, num: int, streams: Streams) -> tuple[Partition, list[str]]:
    """Return each of `num` clients' indices of `data.train` by the scenario's `partition`, and notices for the user.

    Raises ValueError, or DatasetError where the column to share out by has empty cells.
    """
    if column := partition.params.get("column"):
        return _by_column(data, column, partition, num, streams)
    if partition.kind == given_by_file.__name__:
        parts, notes = _as_given(data, partition, num, streams)
    else:
        drawn = partition.build(_labels(data, partition), num, streams)
        parts, notes = [np.asarray(part, np.int64) for part in drawn], []
    if partition.own or partition.kind == given_by_file.__name__:
        notes = [*notes, *_unevenly_used(parts, len(data.train), partition.kind)]
    return parts, notes


def _unevenly_used(parts: Partition, num: int, kind: str) -> list[str]:
    """Return a note if a user's partition gives some of `num` examples more than once, or to nobody; else nothing."""
    times = np.bincount(np.concatenate([np.asarray(part, np.int64) for part in parts]), minlength=num)
    often, unused = int((times > 1).sum()), int((times == 0).sum())
    found = [f"{often} more than once"] * (often > 0) + [f"{unused} to nobody"] * (unused > 0)
    return [f"partition {kind} gives, of {num} training examples, {' and '.join(found)}"] if found else []


def _labels(data: SharedData, partition: Any) -> NDArray[Any]:
    """Return a copy of the examples' classes, which a partition may sort; zeros if none exist and none are needed."""
    if data.labels is not None:
        return data.labels.copy()
    if partition.kind == "iid" or partition.own:
        return np.zeros(len(data.train), np.int64)
    what = f"partition {partition.kind} shares out by the class of each example, and targets are no classes"
    raise ValueError(f"{what}: use iid, given, or by_column")


def _by_column(
    data: SharedData, column: str, partition: Any, num: int, streams: Streams
) -> tuple[Partition, list[str]]:
    """Distribute examples by the values of a column; drop examples with an empty cell if `data.drops`."""
    if column not in data.columns:
        known = ", ".join(data.columns) or "none: give Datasets(columns={...})"
        raise ValueError(f"partition: the data have no column {column!r}; there is {known}")
    values = data.columns[column]
    empty = np.ma.getmaskarray(values)
    if not data.drops:
        given = empty if data.rows is None else np.zeros(data.num_given, np.bool_)
        given[np.arange(len(empty)) if data.rows is None else data.rows] = empty
        refuse_empty(given, column, "partition", "fill it, or set missing: drop, and such rows are nobody's")
    there = np.flatnonzero(~empty)
    parts = partition.build(np.ma.getdata(values)[there], num, streams)
    notes = [f"partition: examples whose {column} is empty are nobody's ({int(empty.sum())})"] if empty.any() else []
    return [there[part] for part in parts], notes


def _as_given(data: SharedData, partition: Any, num: int, streams: Streams) -> tuple[Partition, list[str]]:
    """Distribute examples by their indices in the data as the user gave them; skip and count removed ones."""
    named = partition.build(np.zeros(data.num_given or len(data.train), np.int64), num, streams)
    if data.rows is None:
        return named, []
    place = np.full(data.num_given, -1, np.int64)
    place[data.rows] = np.arange(len(data.rows))
    parts = [places[places >= 0] for places in (place[part] for part in named)]
    gone = [len(part) - len(left) for part, left in zip(named, parts, strict=True)]
    if empty := [client for client, part in enumerate(parts) if not len(part)]:
        what = f"all examples of client {empty[0]} ({len(named[empty[0]])}) are held out as the test set, or left out"
        raise ValueError(f"{what}: give a test set of your own, or hold a smaller share out (test)")
    counts = ", ".join(f"client {client}: {count}" for client, count in enumerate(gone[:_MOST_NAMED]) if count)
    file = Path(str(partition.params.get("file", ""))).name
    note = (
        f"partition {file}: numbers are those of the data as given; {sum(gone)} of its {sum(map(len, named))} examples"
    )
    return [np.sort(part) for part in parts], [f"{note} are in the test set or left out ({counts})"] if any(
        gone
    ) else []


_MOST_NAMED = 12
