"""Nodes are placed on sites as written, by group, in order and by chance, and each mistake is named with a remedy."""

from __future__ import annotations

import re
from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.underlay.placement import place
from tests.underlay.sites import SITES

GROUPS = {"paris": [0, 1], "milan": [2]}


def placed(how: Any, num_nodes: int = 3, seed: int = 0, groups: Any = GROUPS) -> dict[int, str]:
    return place(how, num_nodes, SITES, groups, Streams(seed))


def test_nodes_are_placed_site_after_site_and_again_from_the_first() -> None:
    assert placed("in order", 6) == dict(enumerate([*SITES, "paris", "zurich"]))


def test_a_group_is_on_the_site_of_its_name() -> None:
    assert placed("by group") == {0: "paris", 1: "paris", 2: "milan"}


def test_selectors_place_numbers_ranges_and_groups() -> None:
    assert placed({"paris": "vienna", "2": "paris"}) == {0: "vienna", 1: "vienna", 2: "paris"}
    assert placed({"0..1": "milan", "2": "milan"}) == dict.fromkeys(range(3), "milan")
    assert placed({"0..1": "milan", "1..2": "milan"}) == dict.fromkeys(range(3), "milan")


def test_chance_places_by_the_seed_over_all_sites() -> None:
    found = placed("random", 200)
    assert found == placed("random", 200)
    assert found != placed("random", 200, seed=1)
    assert set(found.values()) == set(SITES)
    assert list(placed("random", 3).items()) == list(found.items())[:3]


@pytest.mark.parametrize(
    ("how", "groups", "said"),
    [
        ({"0..2": "pariss"}, GROUPS, "there is no site 'pariss'; did you mean paris?"),
        ({"0..2": "oslo"}, GROUPS, "there is no site 'oslo'; choose one of milan, paris, vienna, zurich"),
        ({"0..1": "paris"}, GROUPS, "node 2 has no site; add 2: paris, say"),
        ({"2": "paris"}, GROUPS, "node 0 has no site, nor have 1 more; add 0: paris, say"),
        ({"0..2": "paris", "1": "milan"}, GROUPS, "node 1 is on paris and on milan; leave it on one"),
        ({"0..3": "paris"}, GROUPS, "there is no node 3 (in '0..3'); nodes are 0 to 2"),
        ("by group", {"parish": [0, 1, 2]}, "the group parish is on no site; did you mean paris?"),
        ("by group", {"paris": [0, 1]}, "node 2 has no site; put it into a group"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(how: Any, groups: Any, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        placed(how, groups=groups)
