"""The `links:` block: short forms, selectors, and which entry wins."""

from __future__ import annotations

import pytest

from netdfl.links.rules.latency import constant, lognormal
from netdfl.links.rules.rate import Shape
from netdfl.links.selectors import is_edges, parse_edges, parse_nodes
from netdfl.links.spec import LinksSpec, choose

GROUPS = {"core": [0, 1], "edge": [2, 3, 4, 5]}
MS = 10**6


def named(text):
    return set((parse_edges if is_edges(text) else parse_nodes)(text, GROUPS, 6))


def build(slot, value):
    part = choose(slot, value)
    assert part is not None
    return part.build(*((1,) if slot == "loss" else ()))


def test_short_and_long_forms_mean_the_same():
    assert build("loss", "5%").probability == 0.05
    assert build("loss", 0).probability == 0
    assert build("loss", {"model": "gilbert_elliott", "p": 0.01, "r": "30%"}).r == 0.3
    assert (
        build("latency", "20ms") == build("latency", {"dist": "constant", "delay": 20 * MS}) == constant(delay=20 * MS)
    )
    long = {"dist": "lognormal", "mean": "20ms", "jitter": "5ms", "order": "fifo"}
    assert build("latency", long).quantile(0.3) == lognormal(mean=20 * MS, jitter=5 * MS).quantile(0.3)
    assert build("rate", "10Mbit") == Shape(1e7)
    assert build("rate", {"rate": "10Mbit", "burst": "3kB", "queue": "100KiB"}) == Shape(1e7, 3000, 102400)
    assert build("rate", {"rate": "10Mbit", "queue": {"messages": 50}}) == Shape(1e7, queue_messages=50)
    assert build("loss", {"model": "drop_list", "messages": [{"round": 3, "kind": "ack"}]}).lost
    assert choose("rate", "none") is None


@pytest.mark.parametrize(
    ("slot", "value", "message"),
    [
        ("loss", "5", "probability"),
        ("loss", {"model": "gilbert_eliott", "p": 0.1, "r": 0.1}, "did you mean gilbert_elliott"),
        ("loss", {"model": "gilbert_elliott", "p": 0.1}, "r\n.*required"),
        ("latency", "20", "20ms"),
        ("latency", {"dist": "uniform", "lo": "1ms"}, "lo\n.*not permitted"),
        ("latency", {"dist": "uniform", "low": "1ms", "high": "2ms", "order": "any"}, "order"),
        ("latency", {"dist": "pareto", "minimum": "1ms", "shape": 0.5}, "greater than 1"),
        ("rate", "10MB", "10Mbit"),
        ("rate", {"rate": "1Mbit", "queue": {"messages": 0}}, "queue"),
    ],
)
def test_what_means_nothing_is_refused_with_the_remedy(slot, value, message):
    with pytest.raises(ValueError, match=message):
        choose(slot, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3->5", {(3, 5)}),
        ("0--1", {(0, 1), (1, 0)}),
        ("edge->0", {(2, 0), (3, 0), (4, 0), (5, 0)}),
        ("[0..1]->[1..2]", {(0, 1), (0, 2), (1, 2)}),
        ("0..1->2,4..5", {(0, 2), (0, 4), (0, 5), (1, 2), (1, 4), (1, 5)}),
        ("core--core", {(0, 1), (1, 0)}),
        ("core", {0, 1}),
        ("[0, 4..5]", {0, 4, 5}),
    ],
)
def test_selectors_name_links_and_nodes(text, expected):
    assert named(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3->6", "no node 6.*0 to 5"),
        ("egde->0", "did you mean edge"),
        ("3->3", "itself"),
        ("3->", "names no links"),
        ("0->1->2", "names no links"),
        ("5..3", "3..5"),
    ],
)
def test_bad_selectors_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        named(text)


def test_later_and_more_specific_entries_replace_only_the_keys_they_name():
    block = {
        "3->5": {"loss": "50%"},
        "default": {"loss": "1%", "latency": "20ms", "rate": "1Mbit", "uplink": "8Mbit"},
        "edge->*": {"loss": "2%", "rate": "none"},
        "edge->edge": {"loss": "3%"},
        "edge": {"uplink": "1Mbit"},
        "4": {"downlink": "2Mbit"},
    }

    def facts(edge):
        link = LinksSpec(block, GROUPS, 6).link(edge)
        assert link.loss is not None
        assert link.latency is not None
        return link.loss.build(0).probability, link.latency.build().constant_ns, link.rate is None

    assert facts((0, 1)) == (0.01, 20 * MS, False)
    assert facts((2, 1)) == (0.02, 20 * MS, True)
    assert facts((2, 3)) == (0.03, 20 * MS, True)
    assert facts((3, 5)) == (0.5, 20 * MS, True)
    spec = LinksSpec(block, GROUPS, 6)
    assert [spec.node(n).uplink.build().rate_bps for n in (0, 4)] == [8e6, 1e6]
    assert [spec.node(n).downlink is None for n in (0, 4)] == [True, False]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"0->1": {"uplink": "1Mbit"}}, "'0->1': a link has no key 'uplink'"),
        ({"core": {"loss": "1%"}}, "'core': a node has no key 'loss'"),
        ({"default": {"rate": "0bit"}}, "never carries"),
        ({"default": {"los": "1%"}}, "did you mean loss"),
    ],
)
def test_entries_are_refused_by_their_selector(block, message):
    with pytest.raises(ValueError, match=message):
        LinksSpec(block, GROUPS, 6)
