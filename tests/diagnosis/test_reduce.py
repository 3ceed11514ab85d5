"""Graph reduction against a search over everything that could still happen, and what must hold of it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from wait_graphs import FLYING, fleet, fleets, is_, lost, plain_waits, waits

from netdfl.core.types import NodeId
from netdfl.diagnosis.reduce import hopeless, reduce
from netdfl.diagnosis.snapshot import DOWN, AwaitedFate, AwaitedMessage, EdgeNow, Snapshot, State, WaitKind, WaitNow


def can_give(snapshot: Snapshot, waiter: NodeId, wait: WaitNow, source: NodeId, free: frozenset[NodeId]) -> bool:
    """Written anew from the rules, for fleets as `fleets` draws them."""
    given, now, edge = wait.awaited[source], snapshot.nodes[source], snapshot.edge(source, waiter)
    if given.fate is AwaitedFate.IN_FLIGHT:
        return True
    if given.fate is AwaitedFate.NEVER or (wait.what is WaitKind.MESSAGE and not edge.up and edge.heals_ns is None):
        return False
    alive = now.state not in DOWN or now.back_ns is not None
    if given.fate is AwaitedFate.LOST:
        follows = given.replaced and now.state is not State.FINISHED and (now.wait is None or source in free)
        return alive and (given.resent or follows)
    return alive and now.state is not State.FINISHED and (now.wait is None or source in free)


NOT_HEARD = {State.ABSENT, State.CRASHED, State.PAUSED}
"""States of nodes whose heartbeats do not come."""


def may_go(snapshot: Snapshot, node: NodeId, free: frozenset[NodeId]) -> bool:
    wait = snapshot.nodes[node].wait
    assert wait is not None
    came = {s for s in wait.awaited if can_give(snapshot, node, wait, s, free)}
    if wait.essential:
        return len(came) + len(wait.have) >= wait.need or set(wait.awaited) <= came
    ending = {s for s in wait.awaited if snapshot.nodes[s].ends_ns is not None}
    if wait.what is WaitKind.ROOM:  # a crash makes room, and nothing that a detector says does
        return len(came) + len(wait.have) >= wait.need or set(wait.awaited) <= came | ending
    gone = set(wait.gone)
    if snapshot.detector != "none":
        gone |= ending
    if snapshot.detector == "heartbeat":
        gone |= wait.undecided
        gone |= {s for s in wait.awaited if snapshot.nodes[s].state in NOT_HEARD}
        gone |= {s for s in wait.awaited if not snapshot.edge(s, node).up}
    return len(came) + len(wait.have) >= wait.need or set(wait.awaited) <= came | gone


def stuck_by_search(snapshot: Snapshot) -> frozenset[NodeId]:
    """Try every order of releases; stuck is who is released in none of them."""
    waiting = {node for node, _ in snapshot.waiting}
    seen: set[frozenset[NodeId]] = set()
    todo = [frozenset[NodeId]()]
    while todo:
        free = todo.pop()
        if free in seen:
            continue
        seen.add(free)
        todo += [free | {node} for node in waiting - free if may_go(snapshot, node, free)]
    return frozenset(waiting - frozenset().union(*seen))


@given(fleets())
def test_agrees_with_a_search_over_all_orders_of_release(snapshot: Snapshot) -> None:
    assert reduce(snapshot) == stuck_by_search(snapshot)


@given(fleets())
def test_hopeless_is_stuck_even_when_all_others_are_free(snapshot: Snapshot) -> None:
    for node, _ in snapshot.waiting:
        others = frozenset(snapshot.nodes) - {node}
        assert hopeless(snapshot, node) == (not may_go(snapshot, node, others))


@given(fleets(), st.data())
def test_a_running_node_more_never_makes_more_nodes_stuck(snapshot: Snapshot, data: st.DataObject) -> None:
    before = reduce(snapshot)
    # A failure detector ends the waits for who is silent; were it to speak, they would go on.
    silent = NOT_HEARD if snapshot.detector == "heartbeat" else set()
    up = [node for node, now in sorted(snapshot.nodes.items()) if now.state not in silent]
    if not up:
        return
    node = data.draw(st.sampled_from(up))
    runs = is_(node, State.RUNNING, ends_ns=snapshot.nodes[node].ends_ns)
    running = replace(snapshot, nodes={**snapshot.nodes, node: runs})
    assert reduce(running) <= before


@given(fleets(), st.data())
def test_a_message_in_flight_never_makes_more_nodes_stuck(snapshot: Snapshot, data: st.DataObject) -> None:
    before = reduce(snapshot)
    waiting = [node for node, _ in snapshot.waiting]
    if not waiting:
        return
    node = data.draw(st.sampled_from(waiting))
    wait = snapshot.nodes[node].wait
    assert wait is not None
    source = data.draw(st.sampled_from(sorted(wait.awaited)))
    flying = replace(wait, awaited={**wait.awaited, source: FLYING})
    nodes = {**snapshot.nodes, node: replace(snapshot.nodes[node], wait=flying)}
    assert reduce(replace(snapshot, nodes=nodes)) <= before


@given(st.data(), st.integers(3, 8))
def test_an_or_wait_with_a_sender_that_runs_is_never_stuck(data: st.DataObject, size: int) -> None:
    snapshot = data.draw(st.composite(lambda draw: plain_waits(draw, size, "any"))())
    stuck = reduce(snapshot)
    for node, wait in snapshot.waiting:
        if any(snapshot.nodes[source].state is State.RUNNING for source in wait.awaited):
            assert node not in stuck


def ring(size: int, need: int | None = None) -> Snapshot:
    return fleet(*(waits(i, [(i + 1) % size], need=need) for i in range(size)))


def test_a_cycle_of_and_waits_is_stuck() -> None:
    assert reduce(ring(5)) == frozenset(range(5))


def test_one_message_in_flight_frees_the_whole_cycle() -> None:
    nodes = [waits(i, [(i + 1) % 5]) for i in range(4)] + [waits(4, {0: FLYING})]
    assert reduce(fleet(*nodes)) == frozenset()


def test_a_deadline_frees_the_cycle() -> None:
    nodes = [waits(i, [(i + 1) % 5]) for i in range(4)] + [waits(4, [0], deadline_ns=2 * 10**9)]
    assert reduce(fleet(*nodes)) == frozenset()


def test_two_of_three_go_on_with_two_and_not_with_one() -> None:
    one, two = [is_(1, State.RUNNING)], [is_(1, State.RUNNING), is_(2, State.RUNNING)]
    rest = [is_(n, State.FINISHED) for n in (2, 3)]
    assert reduce(fleet(waits(0, [1, 2, 3], need=2), *one, *rest)) == {0}
    assert reduce(fleet(waits(0, [1, 2, 3], need=2), *two, rest[1])) == frozenset()


def test_what_came_counts() -> None:
    assert reduce(fleet(waits(0, [2], need=1, have=[1]), is_(1, State.RUNNING), is_(2, State.CRASHED))) == frozenset()


def test_a_lost_message_is_for_good_unless_it_is_sent_again() -> None:
    assert reduce(fleet(waits(0, {1: lost(1, 0)}), is_(1, State.RUNNING))) == {0}
    again = AwaitedMessage(AwaitedFate.LOST, "loss", (1, 0), resent=True)
    assert reduce(fleet(waits(0, {1: again}), is_(1, State.RUNNING))) == frozenset()


def test_copies_that_will_all_be_lost_release_nobody_unless_a_later_one_passes() -> None:
    in_vain = AwaitedMessage(AwaitedFate.LOST, "loss", (1, 0), resent=True, in_vain=True)
    assert reduce(fleet(waits(0, {1: in_vain}), is_(1, State.RUNNING))) == {0}
    later = replace(in_vain, passes_ns=9)
    assert reduce(fleet(waits(0, {1: later}), is_(1, State.RUNNING))) == frozenset()


def test_a_crash_is_for_good_unless_the_scenario_restarts_the_node_or_a_detector_names_it() -> None:
    assert reduce(fleet(waits(0, [1]), is_(1, State.CRASHED))) == {0}
    assert reduce(fleet(waits(0, [1]), is_(1, State.CRASHED, back_ns=5))) == frozenset()
    assert reduce(fleet(waits(0, [1]), is_(1, State.CRASHED), detector="heartbeat")) == frozenset()


def test_a_link_that_heals_is_not_for_good() -> None:
    nodes = waits(0, [1]), is_(1, State.RUNNING)
    assert reduce(fleet(*nodes, edges={(1, 0): EdgeNow(up=False)})) == {0}
    assert reduce(fleet(*nodes, edges={(1, 0): EdgeNow(up=False, heals_ns=9)})) == frozenset()


def test_a_thousand_nodes_in_one_chain_are_followed_to_its_end() -> None:
    chain = [waits(i, [i + 1]) for i in range(1000)]
    assert reduce(fleet(*chain, is_(1000, State.RUNNING))) == frozenset()
    assert reduce(fleet(*chain, is_(1000, State.CRASHED))) == frozenset(range(1000))


def test_only_a_wait_that_nothing_ends_is_hopeless() -> None:
    """Who does not wait, and whose wait ends by itself, goes on, whatever will never come."""
    never = {1: AwaitedMessage(AwaitedFate.NEVER)}
    for node, expected in (
        (waits(0, never), True),
        (waits(0, never, deadline_ns=2 * 10**9), False),
        (is_(0, State.RUNNING), False),
    ):
        assert hopeless(fleet(node, is_(1, State.RUNNING)), 0) is expected
