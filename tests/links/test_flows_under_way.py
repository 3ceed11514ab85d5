"""What flows under way leave behind: at a message that cannot move any more, on a way that changes."""

from __future__ import annotations

from itertools import permutations

from netdfl.core.types import Kind
from netdfl.links.rules.base import Departure, Hold, StageOutcome, Transit
from netdfl.links.rules.rate import Shape
from netdfl.links.sharing.capacity import SharedLink
from netdfl.links.sharing.network import FairNetwork
from netdfl.links.sharing.past import Past
from netdfl.links.sharing.stage import FairStage

MBIT, S = 10**6, 10**9


def unit(src: int = 0, dst: int = 1, nbytes: int = 10**6) -> Transit:
    return Transit(src, dst, Kind.DATA, 0, 0, 0, nbytes)


def due_s(outcomes: list[StageOutcome]) -> dict[int, float | None]:
    """When the messages of each sender leave; None: nobody knows yet."""
    assert all(isinstance(each, Departure | Hold) for each in outcomes)
    return {each.unit.src: each.at_ns / S if isinstance(each, Departure) else None for each in outcomes}  # type: ignore[union-attr]


def test_what_can_not_be_moved_any_more_keeps_its_rate_and_others_get_the_rest() -> None:
    network, link = FairNetwork(Past()), SharedLink((1, 9), Shape(8 * MBIT))
    first, second = (FairStage(network, (src, 9), [link]) for src in (0, 1))
    gone = unit(0)
    first.enter(gone, 0)
    assert due_s(list(network.retimed(0))) == {0: 1}
    first.left(gone, S)  # a little ahead of its end, as it is handed over
    network.retimed(S // 2)
    second.enter(unit(1), S // 2)
    assert due_s(list(network.retimed(S // 2))) == {}, "nothing is left for it"
    assert due_s(list(network.retimed(S))) == {1: 2}


def test_who_finds_a_queue_full_does_not_depend_on_who_entered_first() -> None:
    """Of messages that begin at one instant."""
    lost = set()
    for order in permutations(range(3)):
        network, down = FairNetwork(), SharedLink((1, 9), Shape(8 * MBIT, queue_messages=1))
        stages = [FairStage(network, (src, 9), [SharedLink((0, src), Shape(MBIT)), down], judges=()) for src in order]
        units = [unit(src, 9) for src in order]
        for stage, each in zip(stages, units, strict=True):
            stage.enter(each, 0)
        network.retimed(0)
        lost.add(tuple(sorted(each.src for each in units if each.lost is not None)))
    assert lost == {(2,)}


def test_a_message_that_goes_another_way_waits_in_no_queue_of_the_old_one() -> None:
    network, uplink = FairNetwork(), SharedLink((0, 0), Shape(MBIT))
    old, new = (SharedLink((3, n), Shape(8 * MBIT, queue_bytes=1)) for n in range(2))
    stage = FairStage(network, (0, 1), [uplink, old], judges=())
    stage.enter(unit(), 0)
    network.retimed(0)
    other = unit(7)
    old.take(other)
    assert old.is_full(1)
    stage.reroute([old], [new], 1)
    old.release(other)
    old.take(other)
    assert not old.is_full(1), "it is the oldest there"
