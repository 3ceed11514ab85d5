"""The steps of a partition worked out by hand, and the last case that each of its bounds lets through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from netdfl.core.rng import Streams
from netdfl.training.data.partitions import (
    PARTITIONS,
    label_counts,
)

STREAMS = Streams(3)


def test_as_many_clients_as_examples_are_the_most() -> None:
    labels = np.array([0, 1, 2, 0, 1, 2])
    for name in ("iid", "dirichlet", "dirichlet_per_class"):
        assert [len(part) for part in PARTITIONS[name](labels, 6, STREAMS)] == [1] * 6
        with pytest.raises(ValueError, match="7 clients can't share 6 samples: use at most 6 clients"):
            PARTITIONS[name](labels, 7, STREAMS)
    assert [len(part) for part in PARTITIONS["pathological"](labels, 6, STREAMS, classes_per_client=1)] == [1] * 6
    assert [len(part) for part in PARTITIONS["shards"](labels, 3, STREAMS)] == [2] * 3
    with pytest.raises(ValueError, match="3 clients with 3 shards each need 9 samples, the data has 6"):
        PARTITIONS["shards"](labels, 3, STREAMS, shards_per_client=3)


def test_shards_are_cut_from_examples_in_the_order_of_their_labels() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 10))
    counts = label_counts(labels, PARTITIONS["shards"](labels, 3, STREAMS), 6)
    assert counts.shape == (3, 6)
    assert ((counts == 0) | (counts == 10)).all()


def test_values_of_a_column_are_dealt_largest_first_to_who_has_fewest() -> None:
    values = np.repeat(np.array(["a", "b", "c", "d", "e"]), [10, 8, 5, 4, 1])
    parts = PARTITIONS["by_column"](values, 3, STREAMS, column="who")
    held = sorted(sorted(set(values[part].tolist())) for part in parts)
    assert held == [["a"], ["b", "e"], ["c", "d"]]
    assert len(PARTITIONS["by_column"](values, 5, STREAMS, column="who")) == 5
    with pytest.raises(ValueError, match="column 'who' has 5 values for 6 clients: use at most 5 clients"):
        PARTITIONS["by_column"](values, 6, STREAMS, column="who")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ([[0, 1], [5]], ""),
        ([[0], [0]], ""),
        ([[0, 1], []], "the list of client 1 is none of numbers from 0 to 5"),
        ([[0, 6], [1]], "the list of client 0 is none of numbers"),
        ([[-1], [1]], "the list of client 0 is none of numbers"),
        ([[0.0], [1]], "the list of client 0 is none of numbers"),
        ([[True], [1]], "the list of client 0 is none of numbers"),
        ([[0], [[1]]], "the list of client 1 is none of numbers"),
        ([0, 1], "the list of client 0 is none of numbers"),
        ([[0]], "has 1 lists for 2 clients: give one for each"),
        ([[0], [1], [2]], "has 3 lists for 2 clients"),
        (7, "is no list of lists of numbers"),
    ],
)
def test_a_file_of_lists_names_examples_that_there_are(text: Any, said: str, tmp_path: Path) -> None:
    file = tmp_path / "parts.json"
    file.write_text(json.dumps(text))
    labels = np.zeros(6, np.int64)
    if said:
        with pytest.raises(ValueError, match=said):
            PARTITIONS["given"](labels, 2, STREAMS, file=str(file))
    else:
        assert [part.tolist() for part in PARTITIONS["given"](labels, 2, STREAMS, file=str(file))] == text
