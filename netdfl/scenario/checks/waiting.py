"""The checks of `wait`: settings without effect for the algorithm, and waits that can't end on this graph."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from netdfl.algorithms.fitness import told
from netdfl.scenario.build import (
    build_network,
    build_topology,
    drawn,
    is_literal,
    is_push,
    is_static,
    scheme_of,
    sends_vectors,
)
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.schema import Scenario
from netdfl.topology.network import Network
from netdfl.training.stepping import Schedule

_ROUNDS = 8
_LEAST_RATE = 2.0**-149


def stale_acts(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `wait.stale` is set only where the algorithm can mix messages of earlier rounds."""
    if scenario.wait.stale and (found := _no_stale(scenario)):
        yield CheckFinding(("wait", "stale"), *found)


def _no_stale(scenario: Scenario) -> tuple[str, str] | None:
    """Return the reason why no stale message can be mixed, and a remedy; None if one can."""
    name, graph = scenario.algorithm.kind, scenario.topology.kind
    family = scenario.algorithm.traits.family
    if family == "server":
        return f"{name} has a server, which averages the reports of one round", "remove stale, or use dpsgd or sgp"
    if family == "bilateral":
        return f"in {name} two nodes meet, and a reply moves its asker whenever it comes", "remove stale"
    if family == "overlap":
        return f"{name} adds what comes of earlier rounds by itself", "remove stale; tau bounds how late"
    if is_push(scenario):
        return f"a share that {name} sends is mass, and is mixed however late it comes", "remove stale"
    if scenario.compression is not None:
        return "stale is for whole vectors, and here they are compressed", "remove stale or compression"
    if not sends_vectors(scenario):
        return f"stale is for whole vectors, and {name} sends something else", "remove stale, or use dpsgd"
    if "average" in scenario.algorithm.traits.needs:
        return f"{name} needs the exact average of one round", "remove stale, or use dpsgd"
    if scenario.wait.on_missing == "undo":
        return "undo refuses a vector that comes late, and stale would mix it", "use on_missing: self"
    topology = drawn(build_topology, scenario)
    if topology is None or is_static(scenario, topology):
        return None
    what = f"stale gossip mixes the newest vector of each neighbor, and on {graph} neighbors change"
    return what, "use a static graph, or push-sum, which mixes what comes late (sgp)"


def missing_is_treated(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `wait.on_missing` is set only where the algorithm can reassign a missing message's mixing weight."""
    if scenario.wait.on_missing in ("last", "renormalise") and (found := _no_choice(scenario)):
        yield CheckFinding(("wait", "on_missing"), *found)


def _no_choice(scenario: Scenario) -> tuple[str, str] | None:
    """Return the reason why `wait.on_missing` has no effect, because the algorithm decides, and a remedy; or None."""
    name, how = scenario.algorithm.kind, scenario.wait.on_missing
    family = scenario.algorithm.traits.family
    if family == "server":
        return f"{name} averages the reports that came, and knows no {how}", "remove on_missing"
    if family == "bilateral":
        return f"in {name} an exchange that fails moves nobody, and there is no {how}", "remove on_missing"
    if family == "overlap" or is_push(scenario):
        return f"{name} adds up the shares that come: a missing one leaves no weight for {how}", "remove on_missing"
    if scenario.algorithm.traits.sparse:
        return f"{name} averages each coordinate over those that came, and knows no {how}", "remove on_missing"
    scheme = _scheme(scenario)
    if scheme in ("deepsqueeze", "unsafe", "literal"):
        return f"{scheme} gives a missing neighbor's weight to the node itself, and knows no {how}", "use self"
    if scheme == "choco" and how == "renormalise" and scenario.compression is None:
        return "choco can't scale up what came: its references would no longer agree", "use on_missing: self or last"
    return None


def _scheme(scenario: Scenario) -> str:
    """Return the compression scheme of gossip; empty for whole vectors, or if the graph can't be drawn."""
    if is_literal(scenario):
        return "literal"
    if scenario.compression is None:
        return scenario.algorithm.traits.scheme or ""
    return drawn(scheme_of, scenario) or ""


def waits_can_end(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that nodes don't wait for all senders without a deadline where they can't know who will send to them."""
    wait = scenario.wait
    if wait.need != "all" or wait.deadline is not None or wait.announce is not False or scenario.has_server:
        return
    network = drawn(build_network, scenario)
    if network is not None and not network.receivers_know:
        what = "nodes would wait for all who send, without end, and can't know who will"
        yield CheckFinding(("wait",), what, "set announce: true, a deadline, or for: {quorum: k}", key=True)


def quorum_can_come(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that as many messages as the quorum of `wait` can come to some node, because it has as many neighbors.

    Where graphs change, it is enough that as many other nodes exist.
    """
    need, name, path = scenario.wait.need, scenario.algorithm.kind, ("wait", "for")
    if scenario.algorithm.traits.family == "bilateral":
        if isinstance(need, int) and need > 1:
            yield CheckFinding(path, f"in {name} a node waits for one reply, never for {need}", "use for: all")
        if need == "none":
            what = f"in {name} who does not wait for a reply asks again before its last exchange has moved it"
            yield CheckFinding(path, what, "use for: all, with a deadline where replies may be lost")
        return
    if not isinstance(need, int):
        return
    network = drawn(build_network, scenario)
    if network is None:
        return
    static = scenario.has_server or is_static(scenario, network.topology)
    least, most = in_degrees(network, range(1 if static else min(_ROUNDS, scenario.rounds)))
    most = most if static else scenario.num_nodes - 1
    if need > most:
        what = f"nobody on {scenario.topology.kind} ever hears from {need} nodes in a round: the most is {most}"
        yield CheckFinding(path, what, f"use for: all, or a quorum of at most {max(least, 1)}")


def waiting_notices(scenario: Scenario) -> Iterator[str]:
    """Yield a notice where some nodes have fewer senders than the quorum, the number of messages to wait for."""
    need, network = scenario.wait.need, drawn(build_network, scenario)
    bilateral = scenario.algorithm.traits.family == "bilateral"
    if not isinstance(need, int) or network is None or bilateral or scenario.has_server:
        return
    varies = not is_static(scenario, network.topology)
    least, _ = in_degrees(network, range(min(_ROUNDS, scenario.rounds)) if varies else range(1))
    if need <= least:
        return
    known = network.receivers_know or scenario.wait.announce
    until = "without end" if scenario.wait.deadline is None else "until the deadline"
    wait = "wait for all of those" if known else f"then wait {until}"
    rounds = " in some rounds" if varies else ""
    yield f"wait: a quorum of {need} is more than some nodes hear from{rounds} ({least}); they {wait}"


def in_degrees(network: Network, rounds: range) -> tuple[int, int]:
    """Return the fewest and the most nodes that send to one node in any of `rounds`; on a star, to the server."""
    degrees = [network.graph(round).in_degrees for round in rounds]
    if network.server is not None:
        degrees = [each[network.server : network.server + 1] for each in degrees]
    return min(int(each.min()) for each in degrees), max(int(each.max()) for each in degrees)


def hardly_meant(scenario: Scenario) -> Iterator[str]:
    """Yield a warning for each setting that probably has an unintended effect."""
    name, traits = scenario.algorithm.kind, scenario.algorithm.traits
    if traits.remembers and any(event.get("state") == "lost" for event in scenario.events):
        yield (
            f"a client that loses its state begins {name}'s corrections anew at 0, but the server keeps what it had "
            "added up of them: the fleet settles away from the optimum; use state: kept"
        )
    yield from told(traits.warns, scenario.algorithm.params, scenario.rounds)
    yield from _rate_ends(scenario.algorithm.params, scenario.rounds)


def _rate_ends(params: Mapping[str, object], num_rounds: int) -> Iterator[str]:
    """Yield a warning with the first round whose learning rate is too small to train anything, if there is one."""
    lr, decay, schedule = (params.get(name) for name in ("lr", "lr_decay", "schedule"))
    if not isinstance(lr, float | int) or not isinstance(decay, float | int) or not isinstance(schedule, Schedule):
        return

    def ended(round: int) -> bool:
        return lr * decay**round * schedule.factor(round) < _LEAST_RATE

    if not ended(num_rounds - 1):
        return
    first = bisect_left(range(num_rounds), True, key=ended)
    yield (
        f"algorithm: from round {first} on the rate is 0, or less than float32 has, so nothing is trained in the last "
        f"{num_rounds - first} of {num_rounds} rounds; give schedule a floor or as many rounds, or a slower decay"
    )


def weights_stay_one(scenario: Scenario) -> Iterator[str]:
    """Yield a notice if push-sum does no more than plain gossip, because links are symmetric and weights automatic."""
    weights, name = scenario.topology.weights.kind, scenario.algorithm.kind
    if weights != "auto" or not is_push(scenario) or scenario.algorithm.traits.selects:
        return
    if (network := drawn(build_network, scenario)) is None:
        return
    rounds = range(min(_ROUNDS, scenario.rounds) if network.topology.time_varying else 1)
    graphs = [network.graph(round) for round in rounds] if network.receivers_know else []
    if not graphs or not all(graph.is_symmetric for graph in graphs):
        return
    degrees = {int(degree) for graph in graphs for degree in graph.out_degrees}
    yield (
        f"topology.weights: all links of {scenario.topology.kind} work both ways, so auto is metropolis, w stays 1 and "
        f"{name} has nothing to de-bias"
        + ("; with column each node sends 1 / (1 + its out-degree)" if len(degrees) > 1 else "")
        + ("; nor would it with column, for all nodes have as many neighbors" if len(degrees) == 1 else "")
    )
