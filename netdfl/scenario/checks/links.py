"""The checks of links and events: rules that can't be built, or that can't act on packets below TCP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdfl.links.rules.loss import DropList, rounds_beyond
from netdfl.links.schedule.compile import ScheduleError
from netdfl.links.selectors import is_edges, parse_edges, parse_nodes
from netdfl.links.spec import NODE_KEYS, LinksSpec
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.checks.finding import CheckFinding
from netdfl.scenario.model.links import block
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import PacketOptions

_AT_MESSAGES = "use another rule, or world.loss_layer: message"


def links_mean_something(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that every entry of `links` names existing nodes and valid keys, and that its rules can be built."""
    before: dict[object, tuple[str, Mapping[str, object]]] = {}
    for selector, entry in block(scenario.links).items():
        wrong = {key: found for key, part in entry.items() if (found := _unbuildable(key, part))}
        for key, found in wrong.items():
            yield CheckFinding(("links", selector, key), found)
        try:
            sound = {key: part for key, part in entry.items() if key not in wrong}
            LinksSpec({selector: sound}, scenario.groups, scenario.num_nodes)
            other, said = before.setdefault(_named(selector, scenario), (selector, entry))
            if twice := [key for key in entry if key in said and said[key] != entry[key]]:
                what = f"{selector!r} and {other!r} are the same, with another {twice[0]} each; leave one of them out"
                yield CheckFinding(("links", selector), what, key=True)
        except ValueError as exc:
            yield CheckFinding(("links", selector), str(exc), key=True)


def _named(selector: str, scenario: Scenario) -> object:
    """Return what an entry of `links` is about, and how specific it is: equal for entries that the same links have."""
    if selector == "default" or is_edges(selector):
        found = parse_edges(selector, scenario.groups, scenario.num_nodes)
        return frozenset(found.blocks), found.rank
    return parse_nodes(selector, scenario.groups, scenario.num_nodes), selector.strip().isdigit()


def _unbuildable(key: str, part: object) -> str:
    """Return the reason why `part`, the link rule under `key`, can't be built; empty if it can."""
    try:
        if isinstance(part, Part):
            part.build(*((0,) if key == "loss" else ()))
    except (ValueError, OSError) as exc:
        return f"{key}: {exc}"
    return ""


def messages_exist(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that no link drops messages of rounds beyond the last."""
    for selector, entry in block(scenario.links).items():
        loss = entry.get("loss")
        if not isinstance(loss, Part) or type(loss).function is not DropList:
            continue
        if what := rounds_beyond(loss.params["messages"], scenario.rounds):
            yield CheckFinding(("links", selector, "loss"), f"loss: {what}")


def events_can_be(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that events name existing nodes and links, and that no two events contradict each other."""
    try:
        compile_schedule(scenario)
    except ScheduleError as exc:
        for index, what in exc.problems:
            yield CheckFinding(("events", index), what)


def layer_exists(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that `world.loss_layer: packet` is set only with network devices, or in simulation with a TCP model."""
    world = scenario.world
    if world.loss_layer == "packet" and not isinstance(world, PacketOptions) and world.kind != "simulated":
        what = f"{world.kind} has no packets, its links act on messages"
        yield CheckFinding(("world", "loss_layer"), what, "remove loss_layer, or use kind: namespaces")


def sharing_notices(scenario: Scenario) -> Iterator[str]:
    """Yield a notice if `sharing: fifo` is set where links act on packets, because real TCP shares the rate there."""
    if scenario.world.loss_layer != "packet" or scenario.world.kind == "simulated":
        return
    rules = [(where, key, entry.get(key)) for where, entry in block(scenario.links).items() for key in NODE_KEYS]
    asked = [
        f"{where}.{key}" for where, key, rule in rules if getattr(rule, "kind", None) == "serial" if _in_turn(rule)
    ]
    if asked:
        yield f"sharing: fifo of {', '.join(asked)} does nothing in {scenario.world.kind}, where TCP shares the link"


def _in_turn(rule: object) -> bool:
    return isinstance(rule, Part) and rule.params.get("sharing") == "fifo"


def packets_can(scenario: Scenario) -> Iterator[CheckFinding]:
    """Check that no rule or event that acts on packets needs whole messages, or a sender that learns of losses."""
    if scenario.world.loss_layer != "packet":
        return
    for selector, entry in block(scenario.links).items():
        for key, part in entry.items():
            if what := _no_packet(key, part) or _no_model(scenario, key):
                yield CheckFinding(("links", selector, key), what, _AT_MESSAGES)
    try:
        events = compile_schedule(scenario)
    except ScheduleError:
        return
    wrong: dict[int, str] = {}
    for event in events:
        if event.names_messages:
            wrong.setdefault(event.source, f"a packet has no name: {event.action} is about messages")
    for event in (event for event in events if event.action == "set"):
        if event.at_round is not None:
            wrong.setdefault(event.source, "a packet belongs to no round: at_round can't act on links")
        for key, value in event.parameters.items():
            if what := _no_packet(key, value) or _no_model(scenario, key):
                wrong.setdefault(event.source, what)
    for index, what in sorted(wrong.items()):
        yield CheckFinding(("events", index), what, _AT_MESSAGES)


def _no_model(scenario: Scenario, key: str) -> str:
    unknown = scenario.world.kind == "simulated" and key in ("duplicate", "corrupt", "reorder")
    return f"the simulated world's model of TCP knows no {key}" if unknown else ""


def _no_packet(key: str, value: object) -> str:
    """Return the reason why the link rule `key: value` can't act on packets; empty if it can."""
    rule: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    if isinstance(value, Part):
        rule = {"model": value.kind, **value.params}
    if key == "loss" and (model := rule.get("model")) in ("drop_list", "recorded"):
        return f"a packet has no name: {model} loses messages"
    if key == "corrupt" and rule.get("mode") == "deliver":
        return "TCP's checksum finds damaged packets: corrupt can't deliver them"
    if key == "state" and value == "down_hold":
        return "no router keeps packets until a link is back: down_hold holds messages"
    return ""
