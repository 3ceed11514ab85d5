"""Mistakes about links and events: rules that can't be built, or that packets can't bear."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netdfl.links.rules.loss import DropList, rounds_beyond
from netdfl.links.schedule.compile import ScheduleError
from netdfl.links.spec import LinksSpec
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.checks.finding import Finding
from netdfl.scenario.model.links import block
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.world import PacketOptions

_AT_MESSAGES = "use another rule, or world.loss_layer: message"


def links_mean_something(scenario: Scenario) -> Iterator[Finding]:
    """Every entry of `links` names nodes that exist, sets keys that suit it, and its rules can be built."""
    for selector, entry in block(scenario.links).items():
        wrong = {key: found for key, part in entry.items() if (found := _unbuildable(key, part))}
        for key, found in wrong.items():
            yield Finding(("links", selector, key), found)
        try:
            sound = {key: part for key, part in entry.items() if key not in wrong}
            LinksSpec({selector: sound}, scenario.groups, scenario.num_nodes)
        except ValueError as exc:
            yield Finding(("links", selector), str(exc), key=True)


def _unbuildable(key: str, part: object) -> str:
    """Why a rule of a link can't be built; empty where it can."""
    try:
        if isinstance(part, Part):
            part.build(*((0,) if key == "loss" else ()))
    except (ValueError, OSError) as exc:
        return f"{key}: {exc}"
    return ""


def messages_exist(scenario: Scenario) -> Iterator[Finding]:
    """No link drops messages of rounds that the run does not have."""
    for selector, entry in block(scenario.links).items():
        loss = entry.get("loss")
        if not isinstance(loss, Part) or type(loss).function is not DropList:
            continue
        if what := rounds_beyond(loss.params["messages"], scenario.rounds):
            yield Finding(("links", selector, "loss"), f"loss: {what}")


def events_can_be(scenario: Scenario) -> Iterator[Finding]:
    """Every event names what exists, and no two contradict each other."""
    try:
        compile_schedule(scenario)
    except ScheduleError as exc:
        for index, what in exc.problems:
            yield Finding(("events", index), what)


def layer_exists(scenario: Scenario) -> Iterator[Finding]:
    """Only worlds with a network of their own have packets, or a model of what TCP makes of them."""
    world = scenario.world
    if world.loss_layer == "packet" and not isinstance(world, PacketOptions) and world.kind != "simulated":
        what = f"{world.kind} has no packets, its links act on messages"
        yield Finding(("world", "loss_layer"), what, "remove loss_layer, or use kind: namespaces")


def packets_can(scenario: Scenario) -> Iterator[Finding]:
    """At packet level, nothing that needs a message, or a sender that is told."""
    if scenario.world.loss_layer != "packet":
        return
    for selector, entry in block(scenario.links).items():
        for key, part in entry.items():
            if what := _no_packet(key, part) or _no_model(scenario, key):
                yield Finding(("links", selector, key), what, _AT_MESSAGES)
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
        yield Finding(("events", index), what, _AT_MESSAGES)


def _no_model(scenario: Scenario, key: str) -> str:
    unknown = scenario.world.kind == "simulated" and key in ("duplicate", "corrupt", "reorder")
    return f"the simulated world's model of TCP knows no {key}" if unknown else ""


def _no_packet(key: str, value: object) -> str:
    """What is wrong with a rule of a link at packet level; empty where nothing is."""
    rule: Mapping[str, object] = value if isinstance(value, Mapping) else {}
    if isinstance(value, Part):
        rule = {"model": value.kind, **value.params}
    if key == "loss" and rule.get("model") == "drop_list":
        return "a packet has no name: drop_list loses messages"
    if key == "corrupt" and rule.get("mode") == "deliver":
        return "TCP's checksum finds damaged packets: corrupt can't deliver them"
    if key == "state" and value == "down_hold":
        return "no router keeps packets until a link is back: down_hold holds messages"
    return ""
