"""The scenario without some possible causes: a file of its own, in which other messages meet the same random losses.

Random draws that are keyed by a message's name stay the same by themselves. Where a loss rule has memory, the losses of
the run are written out, message by message. A message that the run did not have is then lost at random, with the rule's
mean probability.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from netdfl.blame.candidates import BY_LUCK, CORE, Candidate, MessageName, delay_of, least_ns, named
from netdfl.core.types import Edge, NodeId
from netdfl.explore.edits import Plain
from netdfl.explore.rows import MessageRow
from netdfl.links.rules.figures import figures
from netdfl.links.rules.loss import Bernoulli
from netdfl.links.rules.recorded import RecordedLoss
from netdfl.links.schedule.compile import ScheduleError
from netdfl.links.schedule.returns import keeps_state, returns_by_node
from netdfl.links.spec import LinkPart, choose
from netdfl.scenario.build import build_links, compile_schedule
from netdfl.scenario.explain.link_rules import keep_order, lets_overtake
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.schema import Scenario
from netdfl.underlay.sites import ONE_WAY, ends_in

_DRAWN_BY_INDEX = ("random", "churn")
"""Keys of events whose random draws depend on the place of the event in the scenario's list."""
_OF_NODES = (("slowness", "as_others"), ("deadline", "no_deadline"))
"""The kinds of possible causes that are nodes, each with the key of `world` that lists nodes freed of that cause."""
KEYS_OF_WORLD = (*(key for _, key in _OF_NODES), "keeps_state", "overtaking")
"""The keys of `world` by which a scenario without possible causes may differ from its run."""
_NOTHING = {"at_round": 0, "drop": "0->1", "incarnation": 1_000_000}
"""An event that never acts. It replaces a removed event, so that later entries keep their index, and so their draws."""


class Counterfactuals:
    """The variants of a run's scenario, each without some possible causes of the run's cost."""

    def __init__(self, scenario: Scenario, rows: Sequence[MessageRow]) -> None:
        """Prepare variants of `scenario`, the run's; `rows` are the messages that the run sent."""
        self.scenario, self._links = scenario, build_links(scenario)
        self._of_edge: dict[Edge, list[tuple[MessageName, bool]]] = {}
        for name, row in named(rows):
            self._of_edge.setdefault((row.src, row.dst), []).append((name, row.fate == BY_LUCK))

    @cached_property
    def _plain(self) -> Plain:
        """The scenario, in which losses by rules with memory are written out message by message."""
        plain = to_plain(self.scenario)
        links: dict[str, Plain] = {key: dict(entry) for key, entry in plain["links"].items()}  # type: ignore[attr-defined]
        for entry in links.values():
            part = choose("loss", entry.get("loss"))
            if counts(part):
                entry["loss"] = _recorded((), mean_of(part))
        plain["links"] = links
        for edge in self.counting:
            _set(plain, edge, {"loss": _recorded(self._of_edge[edge], mean_of(self._links.link(edge).loss))})
        return plain

    @cached_property
    def counting(self) -> dict[Edge, frozenset[MessageName]]:
        """The links whose loss rule has memory, each with the names of the messages that the run sent over it."""
        return {
            edge: frozenset(name for name, _ in fates)
            for edge, fates in self._of_edge.items()
            if counts(self._links.link(edge).loss)
        }

    def without(self, candidates: Collection[Candidate]) -> Plain:
        """Return the scenario without the possible causes `candidates`, as plain data in a scenario file's form."""
        if not candidates:
            return to_plain(self.scenario)
        plain = {**self._plain, "links": {key: dict(entry) for key, entry in self._plain["links"].items()}}
        plain["world"] = dict(plain["world"])
        for kind, key in _OF_NODES:
            nodes = {each.place[0] for each in candidates if each.kind == kind}
            if nodes:
                plain["world"][key] = sorted({*plain["world"][key], *nodes})
        for edge, changes in self._on_links(candidates):
            _set(plain, edge, changes)
        for each in candidates:
            if each.kind == "bottleneck" and each.place[-1] == CORE:
                plain["underlay"] = _with_unbounded(plain["underlay"], *each.place[:2])
            elif each.kind == "bottleneck":
                node, key = each.place
                plain["links"][str(node)] = {**plain["links"].pop(str(node), {}), key: None}
        gone = {each.place[0] for each in candidates if each.kind == "event"}
        plain["events"] = self._events_without(gone)
        plain["world"] |= self._expected(plain)
        return plain

    def _expected(self, plain: Plain) -> Plain:
        """Return the keys of `world` that let nodes prepare for what the run's scenario has and `plain` lacks.

        A node that may restart with its state acknowledges messages later, and nodes that rely on the order of messages
        end some waits sooner, both from round 0 on. So without these keys, a rerun would differ from the run long
        before the event.
        """
        world, events = plain["world"], plain["events"]
        found: Plain = {}
        if keeping := self._keeping(self.scenario.events) - self._keeping(events):
            found["keeps_state"] = sorted({*world["keeps_state"], *keeping})
        if not keep_order(self.scenario) and not lets_overtake((*plain["links"].values(), *events)):
            found["overtaking"] = True
        return found

    def _keeping(self, events: Sequence[Mapping[str, Any]]) -> set[NodeId]:
        """Return the nodes that keep their state because one of `events` restarts them with it."""
        schedule = compile_schedule(self.scenario.model_copy(update={"events": events}))
        return {node for node, own in returns_by_node(schedule).items() if keeps_state(own, node)}

    def drawn(self, rows: Sequence[MessageRow]) -> int:
        """Return how many messages of a rerun (`rows`) had their loss drawn at random, as the run did not have them."""
        played = (name for name, row in named(rows) if (row.src, row.dst) in self.counting)
        return sum(name not in self.counting[name[:2]] for name in played)

    def _on_links(self, candidates: Collection[Candidate]) -> Iterator[tuple[Edge, Plain]]:
        kept: dict[Edge, set[MessageName]] = {}
        for each in sorted(candidates, key=lambda each: each.kind != "message"):
            if each.kind == "loss":
                yield each.place[:2], {"loss": None, "corrupt": None}
            elif each.kind == "delay":
                least = least_ns(delay_of(self._links.link(each.place[:2]).latency))
                yield each.place[:2], {"latency": f"{least}ns", "reorder": None}
            elif each.kind == "message":
                kept.setdefault(each.place[:2], set()).add(each.place)
        for edge, names in kept.items():
            yield edge, {"loss": self._kept(edge, names)}

    def _kept(self, edge: Edge, names: Collection[MessageName]) -> Plain:
        """Return a loss rule by which a link loses the same messages as in the run, except those named in `names`."""
        part = self._links.link(edge).loss
        fates = [(name, lost and name not in names) for name, lost in self._of_edge[edge]]
        if part is not None and isinstance(part.build(0), Bernoulli):
            of = {name[:-1] for name in names}
            fates = [(name, lost) for name, lost in fates if name[:-1] in of]
        return _recorded(fates, mean_of(part))

    def _events_without(self, gone: Collection[int]) -> list[dict[str, Any]]:
        """Return the events without those at the indices `gone`, and without others that then make no sense.

        For example, without the event that cuts a link, the event that heals it is left out, too.
        """
        gone, events = set(gone), self.scenario.events
        while True:
            kept = [index for index in range(len(events)) if index not in gone]
            last = max((i for i in kept if any(key in events[i] for key in _DRAWN_BY_INDEX)), default=-1)
            places = [index for index in range(len(events)) if index not in gone or index < last]
            left = [dict(_NOTHING if index in gone else events[index]) for index in places]
            try:
                compile_schedule(self.scenario.model_copy(update={"events": left}))
            except ScheduleError as error:
                wrong = {places[place] for place, _ in error.problems} - gone
                if not wrong:
                    raise
                gone |= wrong
            else:
                return left


def counts(part: LinkPart | None) -> bool:
    """Return whether a loss rule has memory: whether the fate of a message depends on the messages before it."""
    model = None if part is None else part.build(0)
    return model is not None and bool(getattr(model, "remembers", True))


def mean_of(part: LinkPart | None) -> float:
    """Return the share of messages that a loss rule loses in the long run; 0 if it is not known."""
    model = None if part is None else part.build(0)
    if isinstance(model, RecordedLoss):
        return model.otherwise
    share = figures(model).get("stationary_loss")
    return float(share) if isinstance(share, int | float) else 0.0


def _recorded(fates: Sequence[tuple[MessageName, bool]], otherwise: float) -> Plain:
    messages = [_fate(name, lost) for name, lost in fates]
    return {"model": "recorded", "messages": messages, "otherwise": otherwise}


def _fate(name: MessageName, lost: bool) -> dict[str, object]:
    _, _, kind, life, round, step, attempt, _ = name
    said = {"round": round, "lost": lost, "step": step, "kind": kind.value, "attempt": attempt, "incarnation": life}
    usual: Mapping[str, object] = {"lost": False, "step": 0, "kind": "data", "attempt": 0, "incarnation": 0}
    return {key: value for key, value in said.items() if key not in usual or usual[key] != value}


def _with_unbounded(underlay: Plain, src: str, dst: str) -> Plain:
    """Return the block `underlay` with an unlimited rate from site `src` to site `dst`."""
    links: dict[str, Plain] = {}
    for name, entry in underlay["links"].items():
        one, other, both = ends_in(name)
        for ends in ((one, other), (other, one)) if both else ((one, other),):
            links[ONE_WAY.join(ends)] = {**entry, "rate": None} if ends == (src, dst) else entry
    return {**underlay, "links": links}


def _set(plain: Plain, edge: Edge, changes: Plain) -> None:
    """Set rules of one link in a scenario, so that they take precedence over all other entries for this link."""
    links, (src, dst) = plain["links"], edge
    of_link = (f"{src}->{dst}", f"{src}--{dst}", f"{dst}--{src}")
    rules: Plain = {}
    for selector, entry in links.items():
        if selector.replace(" ", "") in of_link:
            rules |= entry
    for selector in [selector for selector in links if selector.replace(" ", "") == of_link[0]]:
        del links[selector]
    links[of_link[0]] = rules | changes
