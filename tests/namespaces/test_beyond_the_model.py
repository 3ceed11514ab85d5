"""What the model of TCP can't have: the cases of `tests.soak.beyond_the_model`, and the table of what it measured."""

from __future__ import annotations

from pathlib import Path

import pytest

import netdfl
from tests.soak.beyond_the_model import CASES, SHORT, table
from tests.soak.shared_packets import Kept


@pytest.mark.parametrize("name", CASES)
def test_each_message_is_in_one_group_and_packets_can_carry_it(name: str) -> None:
    traffic, groups = CASES[name]
    assert sorted(n for places in groups.values() for n in places) == list(range(len(traffic.messages)))
    netdfl.load(traffic.document({"kind": "namespaces"}))


def test_groups_of_messages_are_shown_beside_the_model(tmp_path: Path) -> None:
    name, kept = "round trips of 20 and 200 ms on one uplink", Kept(tmp_path)
    kept.add(name, lasted_s=[5.0, 7.0])
    kept.add(name, lasted_s=[5.5, 7.5])
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in table(Kept(tmp_path))[2:]]
    assert [row[:4] for row in rows] == [[name, "20 ms", "2", "5.25"], [name, "200 ms", "2", "7.25"]]
    short_s, long_s = (float(row[4]) for row in rows)
    assert 6.6 < short_s < long_s < 6.8, "equal shares of the uplink"
    assert [row[5][0] for row in rows] == ["+", "-"]


def test_a_short_message_waits_for_nobody_in_the_model() -> None:
    for name in ("a queue of 50 kB", "a deep queue, of 1 MB"):
        traffic, groups = CASES[name]
        lasted = traffic.lasted(traffic.arrivals_by_model())
        (short,) = groups[SHORT]
        assert lasted[short] < 0.2, name
