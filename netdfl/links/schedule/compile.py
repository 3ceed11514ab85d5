"""The compilation of a scenario's `events:` into one flat, sorted list, with a check for contradictions.

An entry has a time (`when.spans`) and an action (one of `ACTIONS`, named by its key).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from netdfl.core.tables import by_name
from netdfl.links.rules.loss import DropList, rounds_beyond
from netdfl.links.schedule import link_actions as on_links
from netdfl.links.schedule import node_actions as on_nodes
from netdfl.links.schedule import plans
from netdfl.links.schedule.compiling import Entry, is_zero_rate
from netdfl.links.schedule.events import STANDING, CompiledEvent
from netdfl.links.schedule.node_conflicts import before_joining, node_conflicts
from netdfl.links.schedule.relative import multiply_nothing
from netdfl.links.schedule.when import Facts, Span, spans, split
from netdfl.links.selectors import Block
from netdfl.links.spec import read_parameters

ACTIONS = by_name(
    *(
        on_links.link,
        on_links.node,
        on_links.partition,
        on_links.heal,
        on_links.flap,
        on_links.random,
        on_links.cut,
        on_links.core,
    ),
    *(plans.contact_plan, plans.trace, on_links.drop, on_links.delay, on_nodes.crash, on_nodes.restart),
    *(on_nodes.join, on_nodes.pause, on_nodes.resume, on_nodes.slow_down, on_nodes.churn),
)
"""The functions for the actions of events, by name. An action's name is the entry's key for its first parameter, as in
`{at: 20s, crash: 4, ...}`. `link`, `node` and `core` take the changes as further keys: `spec.LINK_KEYS`,
`NODE_KEYS`, `CORE_KEYS`."""
_CHANGING = ("link", "node", "core")
_MOST = 500_000


class ScheduleError(ValueError):
    """An error that lists all faulty entries of a schedule: `problems` has the index and the fault of each."""

    def __init__(self, problems: Sequence[tuple[int, str]]) -> None:
        """Store `problems`, pairs of an entry's index and a text about its fault, sorted by entry."""
        self.problems = sorted(problems)
        super().__init__("\n".join(f"events[{index}]: {what}" for index, what in self.problems))


@dataclass(frozen=True, slots=True)
class _ReadEntry(Entry):
    action: str
    events: tuple[CompiledEvent, ...]


def compile_events(entries: Sequence[Mapping[str, object]], facts: Facts) -> list[CompiledEvent]:
    """Compile `entries` to a flat list, sorted by time, then by round; at one moment, ends come before beginnings.

    Raises ScheduleError with every entry that is wrong by itself or, if there is none, every entry that contradicts
    another one.
    """
    problems: list[tuple[int, str]] = []
    read: list[_ReadEntry] = []
    for index, entry in enumerate(entries):
        try:
            read.append(_read(index, entry, facts))
        except (ValueError, OSError) as exc:
            problems.append((index, str(exc)))
    events = sorted((event for entry in read for event in entry.events), key=lambda event: event.order)
    if not problems:
        problems = list(_conflicts(read, events, facts))
    if problems:
        raise ScheduleError(problems)
    return events


def _read(index: int, entry: Mapping[str, object], facts: Facts) -> _ReadEntry:
    timing, written = split(entry)
    action = next(key for key in written if key in ACTIONS)
    when = spans(facts, **read_parameters(spans, timing))
    if action not in _CHANGING:  # whose changes stay as they are written: the compiled event holds them so
        written = read_parameters(ACTIONS[action], written)
    compiled = islice(ACTIONS[action](Entry(facts, index, when), **written), _MOST + 1)
    events = tuple(replace(event, entry=action) for event in compiled)
    if len(events) > _MOST:
        raise ValueError(f"{action} makes more than {_MOST} events here; let it last less long, or change less often")
    return _ReadEntry(facts, index, when, action, events)


def _conflicts(
    entries: Sequence[_ReadEntry], events: Sequence[CompiledEvent], facts: Facts
) -> Iterable[tuple[int, str]]:
    yield from _contradictions([entry for entry in entries if entry.action == "partition"])
    yield from _heals_of_nothing(entries, events)
    yield from _never_moving(events)
    yield from _never_sent(events, facts)
    yield from multiply_nothing(events, facts)
    yield from node_conflicts(events)
    yield from before_joining(events)
    yield from _random_lives(entries)


def _contradictions(partitions: Sequence[_ReadEntry]) -> Iterable[tuple[int, str]]:
    for first, second in combinations(partitions, 2):
        if not any(a.overlaps(b) for a in first.when for b in second.when):
            continue
        cut, also = first.events[0], second.events[0]
        mode = cut.parameters["state"]
        if mode != also.parameters["state"] and any(_meet(a, b) for a in cut.blocks for b in also.blocks):
            what = f"it cuts links that events[{first.source}] cuts at the same time as {mode}"
            yield second.source, f"{what}; give both one mode, or other times"
        elif _cross(cut.blocks, also.blocks):
            what = f"it overlaps events[{first.source}] and contradicts it: each keeps nodes together that the other"
            yield second.source, f"{what} parts; make one a refinement of the other, or give them other times"


def _meet(first: Block, second: Block) -> bool:
    sources, targets = first.src & second.src, first.dst & second.dst
    return bool(sources and targets) and (len(sources | targets) > 1)


def _cross(first: Sequence[Block], second: Sequence[Block]) -> bool:
    """Return whether two network partitions conflict: each separates a pair of nodes that the other keeps together."""
    one, two = ({node: place for place, block in enumerate(cut) for node in block.src} for cut in (first, second))
    both = sorted(one.keys() & two.keys())
    pairs = {(one[a] == one[b], two[a] == two[b]) for a, b in combinations(both, 2)}
    return (True, False) in pairs and (False, True) in pairs


def _heals_of_nothing(entries: Sequence[_ReadEntry], events: Sequence[CompiledEvent]) -> Iterable[tuple[int, str]]:
    heals = {entry.source for entry in entries if entry.action == "heal"}
    broken: list[CompiledEvent] = []
    for event in events:
        if event.cause != STANDING or not event.blocks or "state" not in event.parameters:
            continue
        if event.source not in heals:
            broken.append(event)
        elif not any(
            (other.at_round is None) == (event.at_round is None) and _meet(a, b)
            for other in broken
            for a in other.blocks
            for b in event.blocks
        ):
            yield event.source, "it heals before anything broke these links for good; move it behind the break"


def _never_moving(events: Sequence[CompiledEvent]) -> Iterable[tuple[int, str]]:
    for key in ("rate", "uplink", "downlink"):
        changes = [event for event in events if event.action == "set" and key in event.parameters]
        for place, event in enumerate(changes):
            if event.cause != STANDING or not is_zero_rate(event.parameters[key], key):
                continue
            if not any(_covers(later, event) for later in changes[place + 1 :] if later.cause == STANDING):
                yield event.source, f"it sets {key} to 0 and nothing ends that; give it for: 10s, or a later {key}"


def _never_sent(events: Sequence[CompiledEvent], facts: Facts) -> Iterable[tuple[int, str]]:
    for event in events:
        loss = event.part("loss")
        model = None if loss is None else loss.build(0)
        if isinstance(model, DropList) and facts.rounds is not None:
            what = rounds_beyond(model.messages, facts.rounds)
            if what:
                yield event.source, f"loss: {what}"


def _covers(later: CompiledEvent, event: CompiledEvent) -> bool:
    """Return whether the event `later` acts on all nodes and links of `event`.

    Each block of links of `event` must lie within a single block of `later`.
    """
    return set(event.nodes) <= set(later.nodes) and all(
        any(_is_within(block, wide) for wide in later.blocks) for block in event.blocks
    )


def _is_within(block: Block, wide: Block) -> bool:
    """Return whether `wide` contains each link of `block`; no node has a link to itself."""
    src = block.src - block.dst if len(block.dst) == 1 else block.src
    dst = block.dst - block.src if len(block.src) == 1 else block.dst
    return src <= wide.src and dst <= wide.dst


def _random_lives(entries: Sequence[_ReadEntry]) -> Iterable[tuple[int, str]]:
    """Yield each `crash`, `restart` or `churn` entry whose nodes another `churn` entry crashes at random at that time.

    It yields the entry's index and a text about the conflict.
    """
    lives = [entry for entry in entries if entry.action in ("churn", "crash", "restart")]
    for first, second in combinations(lives, 2):
        churn, other = (first, second) if first.action == "churn" else (second, first)
        if churn.action != "churn" or not any(a.overlaps(b) for a in churn.when for b in _lasting(other)):
            continue
        both = {node for e in churn.events for node in e.nodes} & {node for e in other.events for node in e.nodes}
        if both:
            what = f"node {min(both)} crashes and returns at random times then, by events[{churn.source}]"
            yield other.source, f"{what}; give one of them other nodes or times"


def _lasting(entry: _ReadEntry) -> Sequence[Span]:
    """Return the time spans during which `entry` acts on nodes; a restart counts as a moment."""
    moments = [event.at_ns for event in entry.events if event.at_ns is not None]
    return entry.when if entry.action == "churn" else [Span(at_ns, at_ns + 1) for at_ns in moments]
