"""The checks of `delivery` and of rejoining: whether a way to survive message loss or a crash suits the algorithm."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.core.units import format_time
from netdfl.links.rules.disorder import Corruption
from netdfl.links.rules.latency import Delay
from netdfl.links.rules.mahimahi import Opportunities
from netdfl.links.rules.rate import Shape
from netdfl.links.schedule.events import is_relative
from netdfl.links.schedule.returns import joins_by_node
from netdfl.links.spec import SLOTS, choose
from netdfl.node.delivery import FACTOR, LEAST_NS
from netdfl.scenario.build import build_topology, compile_schedule, drawn, is_push, is_static, sends_vectors, used_links
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.links import block
from netdfl.scenario.model.network import AcknowledgedDelivery, Delivery, Plain, RunningSumsDelivery
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.base import Topology


def survives(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `delivery` (how lost messages are treated) and `wait.on_missing` suit the algorithm and the graph."""
    if (topology := drawn(build_topology, scenario)) is None:
        return
    if isinstance(scenario.delivery, AcknowledgedDelivery):
        yield from _acknowledged(scenario, topology)
    if isinstance(scenario.delivery, RunningSumsDelivery):
        yield from _running_sums(scenario, topology)
    yield from _undo(scenario, topology)


def catches_up(scenario: Scenario) -> str:
    """Return the reason why a restarted node that kept its state can't skip missed rounds; empty if it can.

    It can where nodes send whole vectors or push-sum shares, because its own vector, or value and weight, is valid in
    any round.
    """
    name = scenario.algorithm.kind
    if scenario.algorithm.traits.family == "bilateral":
        return f"a round of {name} is a meeting of two nodes, and none can be left out"
    if scenario.compression is not None:
        return "receivers of compressed messages build on each of them"
    if scenario.wait.on_missing == "undo":
        return "on_missing: undo has both sides of an exchange agree on every round"
    return ""


def joins(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that the server does not join late, and that at least one client takes part from the start."""
    late = joins_by_node(drawn(compile_schedule, scenario) or ())
    for node, event in late.items():
        if node == scenario.nodes:
            what = f"node {node} is the server, without which no client has anything to do"
            yield CheckFinding(("events", event.source, "join"), what, "name clients alone")
    if late and late.keys() >= set(range(scenario.nodes)):
        last = max(late.values(), key=lambda event: event.order)
        what = "all nodes would join late: nobody would be there to begin, or to give them a model"
        yield CheckFinding(("events", last.source, "join"), what, "leave one or more out of the joins")


def rejoins(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `rejoin_weight` is set only for push-sum, and `rejoin: catch_up` only where rounds can be skipped.

    Both are keys of events that restart a crashed node.
    """
    why = catches_up(scenario)
    for index, event in enumerate(scenario.events):
        if event.get("rejoin") == "catch_up" and why:
            yield CheckFinding(("events", index, "rejoin"), f"a node can't catch up here: {why}", "use replay")
        if "rejoin_weight" in event and not is_push(scenario):
            what = f"{scenario.algorithm.kind} has no push-sum weights: a node rejoins with a neighbor's model"
            yield CheckFinding(("events", index, "rejoin_weight"), what, "remove rejoin_weight")


def automatic(scenario: Scenario) -> tuple[Delivery, str]:
    """Return the `delivery` that `auto` stands for, and a notice for the user, which is empty for plain delivery."""
    losing = what_loses(scenario) if is_push(scenario) else ""
    if not losing:
        return Plain(), ""
    topology = build_topology(scenario)
    why = f"links lose messages ({losing}), and a share that {scenario.algorithm.kind} loses is mass gone for good"
    for model, unsuitable in ((AcknowledgedDelivery, _acknowledged), (RunningSumsDelivery, _running_sums)):
        if not any(unsuitable(scenario, topology)):
            delivery: Delivery = model.model_validate({})
            return delivery, f"delivery: auto is {delivery.kind} here: {why}"
    return Plain(), f"delivery: auto is plain here, as nothing else suits the algorithm and the graph: {why}"


def resent_too_late(scenario: Scenario) -> Iterator[str]:
    """Yield a notice if a lost message can't be sent again and arrive before its receiver stops waiting for it.

    This concerns only algorithms that never use a message after the round in which it was sent.
    """
    deadline_ns, delivery = scenario.wait.deadline, scenario.delivery
    if not isinstance(delivery, AcknowledgedDelivery) or not isinstance(deadline_ns, int):
        return
    if is_push(scenario) or scenario.wait.stale or not (losing := what_loses(scenario)):
        return
    latency_ns = _mean_latency_ns(scenario)
    if isinstance(delivery.timeout, int):
        first_ns, by = delivery.timeout, "delivery.timeout"
    else:
        first_ns, by = max(LEAST_NS, FACTOR * 2 * latency_ns), "delivery.timeout: auto, by how long answers take"
    if deadline_ns <= first_ns + latency_ns:
        yield (
            f"wait.deadline: {format_time(deadline_ns)} is over before a lost message ({losing}) can have been sent "
            f"again, after {format_time(first_ns)} ({by}), and come, {format_time(latency_ns)} later: what is sent "
            f"again comes too late for its round, and {scenario.algorithm.kind} does not use it"
        )


def _mean_latency_ns(scenario: Scenario) -> int:
    """Return the largest mean latency of any entry of `links`, in nanoseconds; unknown latencies count as 0."""
    entries = (rules.get("latency") for rules in block(scenario.links).values())
    parts = [choose("latency", value) for value in entries if value is not None]
    delays = [part.build() for part in parts if part is not None]
    return max((round(delay.mean_ns or 0) for delay in delays if isinstance(delay, Delay)), default=0)


def what_loses(scenario: Scenario) -> str:
    """Return the link rule or event that may lose messages; empty if there is none."""
    for selector, rules in block(scenario.links).items():
        for key, value in rules.items():
            if _loses(key, value):
                return f"{key} of {selector}"
    for event in compile_schedule(scenario):
        if event.action == "drop":
            return f"drop by events[{event.source}]"
        for key, value in event.parameters.items() if event.action == "set" else ():
            if _loses(key, value):
                return f"{key} by events[{event.source}]"
    return ""


def _loses(key: str, value: object) -> bool:
    """Return whether a rule can drop messages: by loss, detected damage, a bounded queue, or a link that is down."""
    if key == "state":
        return value in ("down_drop", "down_reset")
    if key not in SLOTS or is_relative(value):
        return False
    part = choose(key, value)
    built = None if part is None else part.build(0)
    if isinstance(built, Shape | Opportunities):
        return built.queue_bytes is not None or built.queue_messages is not None
    if isinstance(built, Corruption):
        return built.detected and built.probability > 0
    return key == "loss" and built is not None and getattr(built, "probability", 1) > 0


def _running_sums(scenario: Scenario, topology: Topology) -> Iterator[CheckFinding]:
    path = ("delivery", "kind")
    name, graph = scenario.algorithm.kind, scenario.topology.kind
    if scenario.algorithm.traits.family != "gossip" or not is_push(scenario):
        yield CheckFinding(
            path, f"running sums are sums of push-sum shares, and {name} sends none", "use acknowledged, or sgp"
        )
    elif not is_static(scenario, topology):
        yield CheckFinding(
            path,
            f"running sums keep a counter per edge, and on {graph} neighbors change: most mass would lie in counters",
            "use delivery: acknowledged, or a static graph such as random_push with redraw_every: 0",
        )
    elif scenario.compression is not None:
        yield CheckFinding(path, "running sums grow without end, so they can't be compressed", "remove compression")
    elif any(event.get("state") == "lost" or "join" in event for event in scenario.events):
        yield CheckFinding(
            path,
            "a node that lost its counters, or joins late, would begin them anew",
            "use acknowledged, or state: kept and no join",
        )


def _acknowledged(scenario: Scenario, topology: Topology) -> Iterator[CheckFinding]:
    path, graph = ("delivery", "kind"), scenario.topology.kind
    if scenario.algorithm.traits.family == "bilateral":
        return  # replies go back over links that have to work both ways anyway
    links = used_links(scenario, topology) or frozenset()
    if edge := min((link for link in links if link[::-1] not in links), default=None):
        yield CheckFinding(
            path,
            f"{edge[0]} sends to {edge[1]}, and {graph} has no link {edge[1]}->{edge[0]} for the answer",
            "use running_sums, or a graph whose links work both ways",
        )


def _undo(scenario: Scenario, topology: Topology) -> Iterator[CheckFinding]:
    if scenario.wait.on_missing != "undo":
        return
    path, name = ("wait", "on_missing"), scenario.algorithm.kind
    if scenario.delivery.kind != "acknowledged":
        yield CheckFinding(path, "undo needs to know which vectors were refused", "add delivery: acknowledged")
    if scenario.algorithm.traits.family != "gossip" or is_push(scenario):
        yield CheckFinding(path, f"undo is for exchanges of gossip, and {name} has none", "use on_missing: self")
    elif not sends_vectors(scenario):
        yield CheckFinding(
            path, f"undo is for whole vectors, and here {name} sends something else", "use on_missing: self"
        )
    elif topology.directed:
        yield CheckFinding(
            path, f"undo is for links that work both ways, and {scenario.topology.kind} has others", "use self"
        )
