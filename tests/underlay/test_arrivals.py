"""Messages over core links arrive when a solver written from the definition of fair sharing says, within 1 us."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.links import fluid
from tests.underlay.sites import FIGURES, MB, MBIT, MS, SITES, S, arrivals, fleet, shortest

EIGHT = {node: SITES[node // 2] for node in range(8)}
OWN_NS = 1 * MS
US = 1000


def solved(
    site_of: Mapping[int, str], messages: list[tuple[float, int, int, int]], up: int | None, down: int | None
) -> dict[int, int]:
    """When each message arrives by the solver: uplink, core links in order, downlink, and all delays at the end."""
    rates: dict[Any, Fraction] = {}
    for name, each in FIGURES.items():
        ways = [name] if "->" in name else [name.replace("--", "->"), "->".join(reversed(name.split("--")))]
        rates |= {way: Fraction(int(each.rate_bps or 0)) for way in ways}
    rates |= {("up", node): Fraction(up) for node in site_of if up}
    rates |= {("down", node): Fraction(down) for node in site_of if down}
    transfers, delay_ns = [], {}
    for n, (at, src, dst, nbytes) in enumerate(messages):
        core = shortest(FIGURES, site_of[src], site_of[dst]) or []
        over = (*([("up", src)] if up else []), *core, *([("down", dst)] if down else []))
        transfers.append(fluid.Transfer(n, (src, dst), Fraction(str(at)), nbytes, over))
        known = {name.replace("--", "->"): each.latency_ns for name, each in FIGURES.items()}
        known |= {"->".join(reversed(name.split("->"))): each for name, each in known.items()}
        delay_ns[n] = OWN_NS + sum(known[name] for name in core)
    ends = fluid.play(transfers, rates)
    return {n: round((end or 0) * S) + delay_ns[n] for n, end in ends.items()}


def within_a_microsecond(found: Mapping[int, Any], expected: Mapping[int, int]) -> bool:
    return found.keys() == expected.keys() and all(abs(found[n] - at) <= US for n, at in expected.items())


LATENCY = {"latency": "1ms"}
NODES = st.integers(0, 7)
TRAFFIC = st.lists(
    st.tuples(st.integers(0, 15).map(lambda at: at / 10), NODES, NODES, st.integers(0, MB)).filter(
        lambda message: message[1] != message[2]
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=40)
@given(TRAFFIC, st.sampled_from([7 * MBIT, 30 * MBIT]), st.sampled_from([4 * MBIT, 30 * MBIT]))
def test_any_traffic_shares_uplinks_core_links_and_downlinks_at_once(
    traffic: list[tuple[float, int, int, int]], up: int, down: int
) -> None:
    rules = {"default": {"uplink": f"{up}bit", "downlink": f"{down}bit", **LATENCY}}
    assert within_a_microsecond(arrivals(fleet(EIGHT), traffic, rules), solved(EIGHT, traffic, up, down))


BUSY = [(0.1 * n, n, (n + step) % 8, 200_000 + 70_000 * n) for n in range(8) for step in (1, 3, 4, 6)]


@pytest.mark.parametrize(("up", "down"), [(None, None), (9 * MBIT, None), (None, 9 * MBIT)])
def test_core_links_are_shared_where_nodes_have_no_uplink_or_no_downlink(up: int | None, down: int | None) -> None:
    rates = {key: f"{rate}bit" for key, rate in (("uplink", up), ("downlink", down)) if rate}
    found = arrivals(fleet(EIGHT), BUSY, {"default": rates | LATENCY})
    # nodes of one site have nothing to share then, and the solver knows no flow without a link
    far = {n for n, (_, src, dst, _) in enumerate(BUSY) if EIGHT[src] != EIGHT[dst]}
    expected = solved(EIGHT, [BUSY[n] for n in sorted(far)], up, down) if up is down is None else None
    if expected is None:
        assert within_a_microsecond(found, solved(EIGHT, BUSY, up, down))
    else:
        assert within_a_microsecond({m: found[n] for m, n in enumerate(sorted(far))}, expected)
        assert all(found[n] == round(BUSY[n][0] * S) + OWN_NS for n in found.keys() - far)


def test_a_link_s_own_rate_caps_a_flow_beside_the_core() -> None:
    rules = {"default": LATENCY, "0->2": {"rate": "1Mbit"}}
    assert arrivals(fleet(EIGHT), [(0, 0, 2, MB), (0, 1, 3, MB)], rules) == {
        0: 8 * S + 4 * MS,
        1: round(8 / 19 * S) + 4 * MS,
    }


def test_uplinks_that_serve_in_turn_stand_before_the_core() -> None:
    rules = {"default": {"uplink": {"rate": "8Mbit", "sharing": "fifo"}}}
    found = arrivals(fleet(EIGHT), [(0, 0, 4, MB), (0, 0, 5, MB)], rules)
    assert sorted(found.values()) == [2 * S + 5 * MS, 3 * S + 5 * MS]
