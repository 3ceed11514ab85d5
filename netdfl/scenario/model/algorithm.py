"""The algorithm, as a scenario names it and as its row in the catalog describes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from netdfl.algorithms.base import Entry
from netdfl.scenario.model.choices import Choices, listed
from netdfl.scenario.model.parts import Part


class AlgorithmPart(Part):
    """The algorithm and its parameters."""

    @property
    def traits(self) -> Entry:
        """The algorithm's entry in the catalog, which describes its properties.

        A user's plain function counts as gossip without requirements on the graph.
        """
        entry, function = type(self).entry, type(self).function
        assert function is not None
        return entry if isinstance(entry, Entry) else Entry(function, "gossip", frozenset(), "")


def algorithms() -> Mapping[str, Entry]:
    """Return the catalog of algorithms, by name."""
    return cast(Mapping[str, Entry], ALGORITHMS.table())


ALGORITHMS = Choices("algorithm", listed("netdfl.algorithms.catalog", "ALGORITHMS"), "name", base=AlgorithmPart)
