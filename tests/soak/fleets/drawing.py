"""Draws fleets of 3 to 8 nodes that train nothing: a family of methods, a graph, waits, delivery, a detector, faults.

A fleet is a scenario as plain values; what it can't be (a graph that the method does not take, two faults that
contradict each other) is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import permutations
from random import Random
from typing import Any, NamedTuple, TypeAlias

import netdfl
from netdfl.core.errors import InputError
from netdfl.core.types import Edge
from netdfl.scenario.build import build_topology, used_links
from netdfl.scenario.model.schema import Scenario

Keys: TypeAlias = dict[str, Any]
MOST_TRIES = 200


class Fleet(NamedTuple):
    """A drawn fleet: its family, and its scenario, plain and loaded."""

    family: str
    plain: Keys
    scenario: Scenario


def draw_fleet(seed: int, number: int) -> Fleet:
    """The fleet `number` of `seed`."""
    rng = Random(f"fleet-{seed}-{number}")
    for _ in range(MOST_TRIES):
        family = rng.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
        try:
            plain = _drawn(f"fleet-{seed}-{number}", family, rng)
            return Fleet(family, plain, netdfl.load(plain))
        except InputError:
            continue
    raise RuntimeError(f"no fleet {number} of seed {seed} can be loaded")


def _drawn(name: str, family: str, rng: Random) -> Keys:
    rounds = rng.randint(3, 8)
    plain: Keys = {
        "schema": "netdfl/1",
        "name": name,
        "seed": rng.randrange(1000),
        "nodes": rng.randint(3, 8),
        "rounds": rounds,
        "world": {"kind": "simulated", "compute": _time(rng, 5, 60)},
        "task": {"kind": "consensus", "dim": 2},
        "wait": _wait(rng),
        "delivery": _delivery(rng),
        "failure_detector": _detector(rng),
        "links": {"default": {"latency": _time(rng, 1, 20)}},
        "evaluation": {"every": 1000},
    }
    _, method = FAMILIES[family]
    plain |= method(plain, rng)
    course = _Course(plain, rng, _edges(plain))
    events = [rng.choices(list(FAULTS), list(FAULTS.values()))[0](course) for _ in range(_how_many(rng))]
    plain["events"] = sorted((event for event in events if event), key=lambda each: "at_round" in each)
    return plain


def _edges(plain: Keys) -> list[Edge]:
    """The links that messages may take. Raises InputError where there is no such fleet."""
    scenario = netdfl.load(plain)
    used = used_links(scenario, build_topology(scenario))
    return sorted(used or permutations(range(scenario.num_nodes), 2))


def _how_many(rng: Random) -> int:
    return rng.choices([0, 1, 2, 3], [1, 6, 6, 4])[0]


def _time(rng: Random, least_ms: float, most_ms: float) -> str:
    """A time in milliseconds, all orders of magnitude equally likely."""
    return f"{round(math.exp(rng.uniform(math.log(least_ms), math.log(most_ms))), 1):g}ms"


# how nodes wait, send and learn of each other


def _wait(rng: Random) -> Keys:
    need = rng.choices(["all", "any", {"quorum": rng.randint(1, 3)}], [8, 1, 2])[0]
    deadline = rng.choices(["none", "auto", _time(rng, 50, 5000)], [7, 2, 2])[0]
    wait: Keys = {"for": need, "deadline": deadline}
    on_stall = rng.choices(["stop", "skip", "resend"], [8, 1, 1])[0]
    return wait if on_stall == "stop" else wait | {"on_stall": on_stall}


def _delivery(rng: Random) -> Any:
    timeout = rng.choice(["auto", _time(rng, 20, 400)])
    acknowledged = {"kind": "acknowledged", "timeout": timeout, "attempts": rng.choice([0, 1, 3, 10, 20])}
    return rng.choices(["plain", acknowledged, "running_sums", "auto"], [6, 4, 1, 1])[0]


def _detector(rng: Random) -> Keys:
    beats = {"kind": "heartbeat", "every": _time(rng, 80, 600), "misses": rng.randint(2, 5)}
    return rng.choices([{"kind": "none"}, {"kind": "oracle"}, beats], [5, 3, 2])[0]


# families of methods


def _gossip(plain: Keys, rng: Random) -> Keys:
    return {"algorithm": rng.choice(["dpsgd", "dfedavg", "lian_dpsgd"]), "topology": _undirected(plain["nodes"], rng)}


def _of_steps(plain: Keys, rng: Random) -> Keys:
    algorithm = {"name": "dfedsam_mgs", "gossip_steps": rng.randint(2, 3)}
    return {"algorithm": algorithm, "topology": _undirected(plain["nodes"], rng)}


def _push_sum(plain: Keys, rng: Random) -> Keys:
    return {"algorithm": rng.choice(["sgp", "osgp"]), "topology": _any_graph(plain["nodes"], rng)}


def _announced(plain: Keys, rng: Random) -> Keys:
    """Push-sum whose senders choose alone."""
    selection = {"kind": "random_k", "k": rng.randint(1, 2), "known": False}
    wait = plain["wait"] | {"announce": rng.random() < 0.7}
    return {"algorithm": "sgp", "topology": {"kind": "full", "selection": selection}, "wait": wait}


def _overlap(plain: Keys, rng: Random) -> Keys:
    algorithm = rng.choice([{"name": "overlap_sgp", "tau": rng.randint(1, 2)}, {"name": "asyng"}])
    return {"algorithm": algorithm, "topology": _any_graph(plain["nodes"], rng)}


def _stale(plain: Keys, rng: Random) -> Keys:
    """Gossip that waits for nobody."""
    wait = {"for": "none", "stale": rng.randint(0, 3)}
    return {"algorithm": "dpsgd", "topology": _undirected(plain["nodes"], rng), "wait": wait}


def _server(plain: Keys, rng: Random) -> Keys:
    return {"algorithm": "fedavg", "topology": "star"}


def _meeting(plain: Keys, rng: Random) -> Keys:
    order, halves = rng.choice(["random", "successor"]), rng.random() < 0.8
    algorithm = {"name": "ad_psgd", "order": order, "bipartite": halves}
    return {"nodes": 2 * rng.randint(2, 4), "algorithm": algorithm, "topology": rng.choice(["ring", "full"])}


Method: TypeAlias = Callable[[Keys, Random], Keys]
FAMILIES: Mapping[str, tuple[int, Method]] = {
    "gossip": (6, _gossip),
    "of several steps": (2, _of_steps),
    "push-sum": (5, _push_sum),
    "announced": (2, _announced),
    "overlap": (2, _overlap),
    "stale": (1, _stale),
    "server": (5, _server),
    "meeting": (3, _meeting),
}
"""Of each family how often it is drawn, and the keys that it sets."""


def _undirected(nodes: int, rng: Random) -> Any:
    kinds = ["ring", "full", {"kind": "erdos_renyi", "p": 0.6}, {"kind": "edge_list", "edges": _tree(nodes, rng)}]
    return rng.choice([*kinds, {"kind": "random_sym", "neighbors": 2}])


def _any_graph(nodes: int, rng: Random) -> Any:
    directed = ["directed_ring", {"kind": "exponential"}, {"kind": "random_push", "out_neighbors": rng.randint(1, 2)}]
    return rng.choice([*directed, {"kind": "exponential", "symmetric": True}, _undirected(nodes, rng)])


def _tree(nodes: int, rng: Random) -> list[list[int]]:
    """A tree, and now and then a link more."""
    edges = {(rng.randrange(node), node) for node in range(1, nodes)}
    if rng.random() < 0.5:
        edges.add(tuple(sorted(rng.sample(range(nodes), 2))))  # type: ignore[arg-type]
    return [list(edge) for edge in sorted(edges)]


# faults


class _Course:
    """What faults go by: nodes, rounds and about what a round takes."""

    def __init__(self, plain: Keys, rng: Random, edges: list[Edge]) -> None:
        self.edges, self.rng, self.rounds, self.links = edges, rng, plain["rounds"], plain["links"]
        self.num = plain["nodes"] + (plain["topology"] == "star")
        compute, latency = plain["world"]["compute"], plain["links"]["default"]["latency"]
        self.round_ms = float(compute[:-2]) + float(latency[:-2])

    def node(self) -> int:
        return self.rng.randrange(self.num)

    def edge(self) -> str:
        src, dst = self.rng.choice(self.edges)
        return f"{src}->{dst}"

    def moment(self) -> Keys:
        """The beginning of a round, or any time of the run."""
        if self.rng.random() < 0.4:
            return {"at_round": self.rng.randrange(self.rounds)}
        return {"at": f"{self.rng.uniform(0, self.rounds * self.round_ms):.1f}ms"}

    def length(self, most_rounds: float = 400) -> str:
        """From a fifth of a round to twenty seconds at most."""
        return _time(self.rng, self.round_ms / 5, min(20_000, self.round_ms * most_rounds))

    def lasting(self) -> Keys:
        """When a link is ill: for good, for a time, or for some rounds."""
        begin = self.moment()
        if "at_round" in begin:
            return begin | ({"for_rounds": self.rng.randint(1, 2)} if self.rng.random() < 0.8 else {})
        return begin | ({"for": self.length()} if self.rng.random() < 0.7 else {})


def _crash(course: _Course) -> Keys:
    return course.moment() | {"crash": course.node()}


def _return(course: _Course) -> Keys:
    state = course.rng.choices(["kept", "lost"], [2, 1])[0]
    event = _crash(course) | {"restart_after": course.length(), "state": state}
    return event | ({"rejoin": "replay"} if state == "kept" and course.rng.random() < 0.3 else {})


def _pause(course: _Course) -> Keys:
    lasts = {"for": course.length()} if course.rng.random() < 0.75 else {}
    return course.moment() | {"pause": course.node()} | lasts


def _down(course: _Course) -> Keys:
    state = course.rng.choice(["down_drop", "down_hold", "down_reset"])
    when = course.lasting()
    return when | {"link": course.edge(), "state": "down_drop" if "at_round" in when else state}


def _partition(course: _Course) -> Keys:
    members = course.rng.sample(range(course.num), course.rng.randint(1, course.num - 1))
    part, rest = sorted(members), sorted(set(range(course.num)) - set(members))
    when = course.lasting()
    mode = course.rng.choice(["down_drop", "down_hold"]) if "at" in when else "down_drop"
    one_way = {"one_way": True} if course.rng.random() < 0.2 else {}
    return when | {"partition": [part, rest], "mode": mode} | one_way


def _loss(course: _Course) -> Keys:
    """By a rule of a link, from the beginning on or for some time."""
    rng, loss = course.rng, course.rng.choice([1, 1, 0.5])
    if rng.random() < 0.5:
        return course.lasting() | {"link": course.edge(), "loss": loss}
    rounds = {"round": rng.randrange(course.rounds)} | ({"attempt": 0} if rng.random() < 0.4 else {})
    by_list = {"model": "drop_list", "messages": [rounds]}
    course.links[course.edge()] = {"loss": rng.choice([by_list, by_list, loss])}
    return {}


def _drop(course: _Course) -> Keys:
    rng = course.rng
    event: Keys = {"at_round": rng.randrange(course.rounds), "drop": course.edge()}
    if rng.random() < 0.3:
        event["kind"] = rng.choice(["data", "notice", "ack", "request", "reply"])
    return event | ({"attempt": 0} if rng.random() < 0.4 else {})


def _delay(course: _Course) -> Keys:
    return {"at_round": course.rng.randrange(course.rounds), "delay": course.edge(), "by": course.length(200)}


def _slow(course: _Course) -> Keys:
    return {"at_round": course.rng.randrange(course.rounds), "for_rounds": 1, "slow_down": course.node(), "factor": 50}


FAULTS: Mapping[Callable[[_Course], Keys], int] = {
    _crash: 3,
    _return: 6,
    _pause: 3,
    _down: 4,
    _partition: 3,
    _loss: 4,
    _drop: 5,
    _delay: 1,
    _slow: 1,
}
"""Of each kind of fault how often it is drawn."""
