"""How much a proof would save if a play ended at a state that an earlier play had: an upper bound, measured.

python -m tests.soak.states_met

Each play is digested at each instant after its last fault: what every node holds, waits for and has sent, its
timers and what is under way, relative to now. The digest leaves out some of what a right one needs (the places of
coroutines, what links and deadlines learned), so that it finds too many states equal, and never too few. A play that
meets such a state would save its remaining steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from typing_extensions import override
from xxhash import xxh3_64_intdigest

from netdfl.core.types import Array, Json, Payload
from netdfl.core.units import parse_time_ns
from netdfl.prove.bound import read_bound
from netdfl.prove.player import Play, Player
from netdfl.prove.proof import ScenarioProof
from netdfl.prove.properties import choose_properties
from netdfl.scenario.load import load
from netdfl.worlds.simulated.loop import VirtualLoop
from netdfl.worlds.simulated.world import SimulatedWorld
from tests.soak.proofs import Cell

BOUNDS = ("loss: 1", "loss: 2")
TIMERS, CANCELLED, SEEN = "_timers", "_cancelled", "_seen"
"""What a digest reads that has no other name."""


class MetStates(NamedTuple):
    """Plays, their steps in all, how many plays met a state, and the steps that these would have saved."""

    plays: int
    steps: int
    met: int
    saved: int


class Digesting(Player):
    """A player that digests the fleet at each step of a play."""

    def __init__(self, player: Player) -> None:
        """Take the scenario of `player`."""
        super().__init__(player.scenario)
        self.round_ns = player.round_ns
        self.states: list[tuple[int, int]] = []

    @override
    def play(self, events: Sequence[Json] = ()) -> Play:
        self.states = []
        before = VirtualLoop.__dict__["_jump"]

        def jump(loop: VirtualLoop) -> None:
            self.states.append((loop.now_ns, digest(self.world, loop)))
            before(loop)

        type.__setattr__(VirtualLoop, "_jump", jump)
        try:
            return super().play(events)
        finally:
            type.__setattr__(VirtualLoop, "_jump", before)

    @override
    def _watch(self, scenario: Any, supervisor: Any, world: SimulatedWorld) -> None:
        super()._watch(scenario, supervisor, world)
        self.world = world


def digest(world: SimulatedWorld, loop: VirtualLoop) -> int:
    """A number of a state of the fleet, relative to now."""
    if not hasattr(world, "nodes") or not hasattr(world, "fabric"):
        return -1
    now = loop.now_ns
    told = [list(_node(each, now)) for _, each in sorted(world.nodes.items())]
    flying = sorted((each.at_ns or 0, repr(_message(each.content[0]))) for each in world.fabric.flights())
    named = sorted(
        (at_ns - now, repr(timer.name))
        for (at_ns, _), timers in getattr(loop, TIMERS).items()
        for timer in timers
        if hasattr(timer, "name") and not getattr(timer, CANCELLED)
    )
    flown = [(at_ns - now, name) for at_ns, name in flying]
    return xxh3_64_intdigest(repr((told, flown, named)).encode())


def _node(simulated: Any, now: int) -> Iterator[object]:
    node = simulated.host.node
    yield simulated.ended, simulated.host.crash is None, node.round, tuple(node.next_step), node.held_weight
    yield list(_bytes(node.latest))
    yield (
        sorted(repr(_message(each)) for each in node.mailbox.unread()),
        sorted(map(repr, getattr(node.mailbox, SEEN).items())),
    )
    wait = node.waits.current
    if wait is not None:
        ends = None if wait.deadline_ns is None else wait.deadline_ns - now
        yield wait.round, wait.step, sorted(wait.have), sorted(wait.silent), ends
    yield sorted(node.waits.gone)
    if node.delivery is not None:
        yield sorted(repr(_message(each)) for each in node.delivery.unsettled())


def _message(message: Any) -> tuple[object, ...]:
    return (*message[:7], list(_bytes(message.payload)))


def _bytes(value: object) -> Iterator[object]:
    if isinstance(value, Array):
        yield bytes(value.data)
    elif isinstance(value, Payload):
        yield from _bytes((value.arrays, value.meta))
    elif hasattr(value, "dtype"):
        yield np.asarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield key
            yield from _bytes(each)
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _bytes(each)
    elif isinstance(value, bool | int | float | str | bytes) or value is None:
        yield value
    elif hasattr(value, "__dict__"):
        yield from _bytes(vars(value))
    elif hasattr(value, "__slots__"):
        yield from _bytes([getattr(value, name, None) for name in value.__slots__])


def measured(cell: Cell, bound: str) -> MetStates:
    """Play a cell's schedules, and count the states that were met before."""
    scenario = load(cell.scenario())
    proof = ScenarioProof(scenario, read_bound(bound), choose_properties(scenario, ["diverged"]))
    player = Digesting(proof.player)
    known: set[int] = set()
    counts = [0, 0, 0, 0]

    def seen(play: Play) -> None:
        last_ns = max((_acts_ns(play, event, proof.round_ns) for event in play.events), default=-1)
        after = [state for at_ns, state in player.states if at_ns > last_ns and state != -1]
        meets = next((place for place, state in enumerate(after) if state in known), None)
        counts[0] += 1
        counts[1] += len(player.states)
        if meets is not None:
            counts[2] += 1
            counts[3] += len(after) - meets
        known.update(after)

    prefix_player = proof.enumeration.prefix_player
    proof.enumeration.prefix_player = type(prefix_player)(player, prefix_player.finder, prefix_player.properties, seen)
    proof.run(120)
    return MetStates(*counts)


def _acts_ns(play: Play, event: Json, round_ns: int) -> int:
    """When an event has acted: the message that it takes was sent."""
    if "at" in event:
        return parse_time_ns(event["at"])
    src, dst = map(int, str(event["drop"]).split("->"))
    sent = (
        m.sent_ns
        for m in play.run.rows.messages
        if (m.src, m.dst, m.round, m.kind.value, m.attempt)
        == (src, dst, event["at_round"], event["kind"], event["attempt"])
    )
    return max(sent, default=0)


def main() -> None:
    """The command line."""
    for method in ("dpsgd", "sgp"):
        for delivery in ("plain", "acknowledged"):
            for wait, bound in product(("all", "deadline") if delivery == "acknowledged" else ("deadline",), BOUNDS):
                told = measured(Cell(method, "ring of 3", delivery, wait), bound)
                share = 100 * told.saved / told.steps
                print(f"{method}, {delivery}, {wait}, {bound}: {told} {share:.1f} %", flush=True)


if __name__ == "__main__":
    main()
