"""The rules of a scenario's links with the numbers that describe them, for `netdfl explain` and the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from netdfl.core.types import Edge
from netdfl.links.rules.disorder import Reordering
from netdfl.links.rules.figures import figures
from netdfl.links.rules.latency import Delay
from netdfl.links.schedule.changes import link_changes
from netdfl.links.selectors import Selector, is_edges, parse_edges
from netdfl.links.spec import NODE_KEYS, SLOTS, choose
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.model.links import block
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import SimulatedOptions
from netdfl.topology.network import Network

MOST_ROUNDS = 64


def link_rules(scenario: Scenario, network: Network | None = None) -> list[dict[str, object]]:
    """Return a row for each key of each entry of `links`, then for each key that an event sets.

    Keys of a row: `of` (the selector of links or nodes), `event` (the index of the event that sets it, or None), `when`
    (the times or rounds in which an event's rule holds, as text), `key`, `rule` (a model's name such as `bernoulli`, a
    state, or none), and `figures` (the rule's numbers, from `links.figures`).

    With `network`, a row's `links` is the number of links on which the rule acts: links of any round that no more
    specific entry overrides. Of graphs that change, only the first `MOST_ROUNDS` rounds are counted. For an event, only
    its own rounds count. It is None for rules of nodes.
    """
    rows = [
        _row(selector, None, key, value)
        for selector, entry in block(scenario.links).items()
        for key, value in entry.items()
    ]
    of_events = [row for index, event in enumerate(scenario.events) for row in _of_event(index, event)]
    times = _times(scenario) if of_events else {}
    rows += [row | {"when": times.get(row["event"], "")} for row in of_events]
    if network is not None:
        in_force = RuleCounter(scenario, network)
        rows = [row | {"links": in_force.count(row["of"], row["event"], row["key"])} for row in rows]
    return rows


def keep_order(scenario: Scenario) -> bool:
    """Return whether each link delivers messages in order: no rule or event lets one overtake an earlier one."""
    if scenario.world.loss_layer == "packet":
        return True  # packets may overtake each other, but TCP hands messages over in order
    if isinstance(scenario.world, SimulatedOptions) and scenario.world.overtaking:
        return False
    return not lets_overtake((*block(scenario.links).values(), *scenario.events))


def lets_overtake(entries: Iterable[Mapping[str, object]]) -> bool:
    """Return whether a link rule in `entries` (of `links` or `events`) lets a message overtake an earlier one."""
    return any(_reorders(key, entry[key]) for entry in entries for key in ("latency", "reorder") if key in entry)


def _reorders(key: str, value: object) -> bool:
    part = None if _is_relative(value) else choose(key, value)
    built = None if part is None else part.build()
    if isinstance(built, Delay):
        return not built.fifo
    return isinstance(built, Reordering) and built.probability > 0


def _of_event(index: int, event: Mapping[str, object]) -> Iterator[dict[str, Any]]:
    for key in SLOTS:
        value = event.get(key)
        if ("link" in event or "node" in event) and key in event and not _is_relative(value):
            yield _row(str(event.get("link", event.get("node"))), index, key, value)


def _times(scenario: Scenario) -> dict[int, str]:
    """Return the times or rounds in which each event changes links, as text, by the event's index."""
    found: dict[int, list[str]] = {}
    for change in link_changes(compile_schedule(scenario)):
        often = f", {change.times:,} times" if change.times > 1 else ""
        found.setdefault(change.source, []).append(change.when + often)
    return {index: ", ".join(dict.fromkeys(told)) for index, told in found.items()}


def _is_relative(value: object) -> bool:
    return isinstance(value, str) and value.lstrip()[:1] in ("x", "×")


def _row(of: str, event: int | None, key: str, value: Any) -> dict[str, Any]:
    row: dict[str, object] = {"of": of, "event": event, "key": key}
    if key == "state":
        return row | {"rule": value, "figures": {}}
    part = choose(key, value)
    if part is None:
        return row | {"rule": "none", "figures": {}}
    name = getattr(part.means, "kind", None) or part.means[0]  # type: ignore[index]
    return row | {"rule": name, "figures": dict(figures(part.build(0)))}


class RuleCounter:
    """A counter of the links on which each rule acts in the first rounds (at most `MOST_ROUNDS`)."""

    def __init__(self, scenario: Scenario, network: Network) -> None:
        """Collect the graphs of `network`, at most of the first `MOST_ROUNDS` rounds."""
        self._scenario = scenario
        rounds = range(min(MOST_ROUNDS, scenario.rounds) if network.varies else 1)
        self._varies = network.varies
        self._edges = [frozenset(network.graph(round).edges) for round in rounds]
        entries = [(self._selector(of), of, entry) for of, entry in block(scenario.links).items() if _on_links(of)]
        self._entries = sorted(entries, key=lambda entry: entry[0].rank)
        self._spans = [event for event in compile_schedule(scenario) if event.action == "set"]

    def count(self, of: str, event: int | None, key: str) -> int | None:
        """Return the number of links on which a rule acts; None for a rule of nodes (uplinks, downlinks).

        Args:
            of: The selector of the rule's entry or event.
            event: The index of the event; None for an entry of `links`.
            key: The kind of rule, such as `loss`.
        """
        if not _on_links(of) or key in NODE_KEYS:
            return None
        if event is None:
            return sum(self._decides(edge, key) == of for edge in frozenset().union(*self._edges))
        selector = self._selector(of)
        return sum(edge in selector for edge in frozenset().union(*self._of_rounds(event)))

    def _decides(self, edge: Edge, key: str) -> str | None:
        """Return the selector whose entry sets rule `key` on `edge`: the most specific one, among equals the last."""
        return next((of for selector, of, entry in reversed(self._entries) if key in entry and edge in selector), None)

    def _of_rounds(self, event: int) -> Iterator[frozenset[Edge]]:
        """Yield the graphs (sets of links) of the rounds in which event number `event` acts.

        These are all graphs if the event is scheduled by time, or the graph never changes.
        """
        spans = [each for each in self._spans if each.source == event and each.at_round is not None]
        for round, edges in enumerate(self._edges):
            inside = any(each.holds_in(round) for each in spans)
            if not self._varies or not spans or inside:
                yield edges

    def _selector(self, of: str) -> Selector:
        return parse_edges(of, self._scenario.groups, self._scenario.num_nodes)


def _on_links(of: str) -> bool:
    return is_edges(of) or of in ("default", "all", "*")
