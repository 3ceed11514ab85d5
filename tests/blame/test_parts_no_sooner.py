"""A run and the same run without an event are equal until the event, whatever the event is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from netdfl.blame.candidates import Candidate
from netdfl.blame.removal import Counterfactuals
from netdfl.core.units import parse_time_ns
from netdfl.explore.execute import Executor, ExploredRun
from netdfl.explore.shrink import beside
from netdfl.scenario.explain.link_rules import keep_order
from netdfl.scenario.load import load
from tests.blame.fleets import RING

JITTER = {"dist": "uniform", "low": "3ms", "high": "9ms"}
LOSSY = {"links": {"default": {"latency": "5ms", "loss": "10%"}}}
FLEETS: Mapping[str, Mapping[str, Any]] = {
    "gossip, a fixed deadline": RING,
    "gossip, acknowledged": RING | {"delivery": "acknowledged", "wait": {"deadline": "none"}} | LOSSY,
    "gossip, deadlines that learn": RING | {"wait": {"deadline": "auto"}} | LOSSY,
    "push-sum, acknowledged": RING | {"algorithm": "sgp", "delivery": "acknowledged"} | LOSSY,
    "push-sum, deadlines that learn": RING
    | {"algorithm": "sgp", "topology": {"kind": "random_push", "out_neighbors": 2, "redraw_every": 1}}
    | {"delivery": "plain", "wait": {"deadline": "auto"}},
    "push-sum in one direction": RING
    | {"algorithm": "sgp", "topology": "directed_ring", "delivery": "plain", "wait": {"deadline": "auto"}, "seed": 1}
    | {"links": {"default": {"latency": "5ms", "loss": "20%"}}},
    "heartbeats": RING | {"failure_detector": {"kind": "heartbeat", "every": "10ms"}, "delivery": "acknowledged"},
    "compressed": RING | {"algorithm": "choco_sgd", "compression": {"kind": "qsgd", "bits": 4}} | LOSSY,
    "a server": RING | {"algorithm": "fedavg", "topology": "star", "nodes": 3, "delivery": "acknowledged"},
    "bilateral": RING | {"algorithm": "ad_psgd", "delivery": "acknowledged"} | LOSSY,
}
AT = {"at": "40ms"}
EVENTS: Mapping[str, Mapping[str, Any]] = {
    "crash, state kept": AT | {"crash": 1, "restart_after": "20ms"},
    "crash, state kept, by round": {"at_round": 3, "crash": 1, "restart_after": "20ms"},
    "crash, state lost": AT | {"crash": 1, "restart_after": "20ms", "state": "lost"},
    "crash for good": AT | {"crash": 1},
    "churn": {"from": "40ms", "to": "90ms", "churn": [1], "up": "20ms", "down": "5ms"},
    "pause": AT | {"pause": 1, "for": "20ms"},
    "slow down": AT | {"slow_down": 1, "factor": 3},
    "link down": AT | {"link": "0->1", "state": "down_drop", "for": "20ms"},
    "link reset": AT | {"link": "0->1", "state": "down_reset", "for": "20ms"},
    "loss": AT | {"link": "0->1", "loss": "90%"},
    "loss by round": {"at_round": 3, "link": "0->1", "loss": "90%"},
    "bursts": AT | {"link": "*->*", "loss": {"model": "gilbert_elliott", "p": 0.3, "r": 0.4}},
    "jitter": AT | {"link": "0->1", "latency": JITTER},
    "reordering": AT | {"link": "0->1", "reorder": {"probability": 0.5, "delay": "9ms"}},
    "damage": AT | {"link": "0->1", "corrupt": "50%"},
    "duplicates": AT | {"link": "0->1", "duplicate": "50%"},
    "rate": AT | {"link": "0->1", "rate": "1Mbit"},
    "uplink": AT | {"node": 0, "uplink": "1Mbit"},
    "downlink": AT | {"node": 0, "downlink": "1Mbit"},
    "partition": AT | {"for": "20ms", "partition": [[0, 1], [2, 3]]},
    "flap": {"from": "40ms", "to": "90ms", "flap": "0->1", "up": "5ms", "down": "5ms"},
    "random outages": {"from": "40ms", "to": "90ms", "random": "0->1", "up": "5ms", "down": "5ms"},
    "drop": {"at_round": 3, "drop": "0->1"},
    "delay": {"at_round": 3, "delay": "0->1", "by": "20ms"},
}
SAMPLED = {
    ("gossip, acknowledged", "crash, state kept"),
    ("push-sum, acknowledged", "crash, state kept, by round"),
    ("push-sum in one direction", "reordering"),
    ("gossip, a fixed deadline", "loss"),
}
CASES = [
    pytest.param(fleet, event, marks=[] if (fleet, event) in SAMPLED or (one + other) % 6 == 0 else [pytest.mark.soak])
    for one, fleet in enumerate(FLEETS)
    for other, event in enumerate(EVENTS)
]


def rows_of(run: ExploredRun) -> Iterator[tuple[int, str]]:
    """Every row of a run with its time; of a message its sending alone."""
    yield from ((message.sent_ns, repr((message[:7], message.nbytes))) for message in run.rows.messages)
    yield from ((metric.at_ns, repr(metric)) for metric in run.rows.measured)
    yield from ((wait.until_ns, repr(wait)) for wait in run.rows.waits)
    for event in run.rows.events:
        if event.kind != "training":
            yield event.at_ns, repr((event.node, event.round, event.kind, sorted(event.details.items())))


def ends_of(run: ExploredRun) -> dict[Any, list[tuple[int, str]]]:
    """When and how each message ended, by its name and time of sending; one that was lost ended as it was sent."""
    found: dict[Any, list[tuple[int, str]]] = {}
    for m in run.rows.messages:
        found.setdefault((m[:7], m.sent_ns), []).append((m.sent_ns if m.arrived_ns is None else m.arrived_ns, m.fate))
    return {name: sorted(ends) for name, ends in found.items()}


def parting(first: ExploredRun, second: ExploredRun) -> tuple[int, str] | None:
    """The first thing that is in one of two runs alone, with its time in nanoseconds.

    A message that arrives in one run alone may have been lost at any moment of its way.
    """
    one, other = (Counter(rows_of(run)) for run in (first, second))
    ends, others = ends_of(first), ends_of(second)
    both = [(ends[name], others[name], name) for name in ends.keys() & others.keys() if ends[name] != others[name]]
    apart = [(max(*ended, *also)[0], repr(name)) for ended, also, name in both]
    return min([*(one - other), *(other - one), *apart], default=None)


def acts_ns(run: ExploredRun, event: Mapping[str, Any]) -> int:
    """When an event can act for the first time: by round, once some node has ended the round before."""
    if "at_round" not in event:
        return parse_time_ns(event.get("at", event.get("from")))
    ends = [m.at_ns for m in run.rows.measured if m.name == "round_s" and m.round == event["at_round"] - 1]
    return min(ends)


@pytest.mark.parametrize(("fleet", "name"), CASES)
def test_without_an_event_a_run_goes_as_it_went_until_the_event(fleet: str, name: str) -> None:
    scenario = load(FLEETS[fleet] | {"events": [dict(EVENTS[name])]})
    run = Executor().run(scenario)
    plain = Counterfactuals(scenario, run.rows.messages).without([Candidate("event", (0,), name)])
    found = parting(run, Executor().run(beside(scenario, plain)))
    assert found is None or found[0] >= acts_ns(run, EVENTS[name]), found


def test_nodes_rely_on_order_no_sooner_where_the_delays_of_a_link_are_taken_out() -> None:
    late = {"reorder": {"probability": 0.5, "delay": "9ms"}}
    links = {**RING["links"], "0->1": late}
    scenario = load(RING | {"links": links})
    delay = Candidate("delay", (0, 1), "the extra delay of 0->1")
    slow = Candidate("slowness", (1,), "a node that is as fast as the others")
    variants = Counterfactuals(scenario, ())
    assert not keep_order(scenario)
    assert not keep_order(beside(scenario, variants.without([delay])))
    assert [variants.without([each])["world"]["overtaking"] for each in (delay, slow)] == [True, False]
