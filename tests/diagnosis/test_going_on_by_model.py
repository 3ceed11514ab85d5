"""When each node goes on, with a setting or as things are, against a plain model that asks all again and again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st
from wait_graphs import FLYING, fleet, fleets, is_, lost, waits

from netdfl.core.types import Edge, NodeId
from netdfl.diagnosis.reduce import Supply, supply, surely_gone, will_be_gone
from netdfl.diagnosis.snapshot import DOWN, AwaitedFate, Snapshot, State
from netdfl.diagnosis.trying import ENDED, LATER_NS, NEVER_NS, NOTHING, Change, Trials, goes_on


def given_by(snapshot: Snapshot, node: NodeId, source: NodeId) -> Supply:
    """Whether a message can come, but for one of which each copy is lost."""
    wait = snapshot.nodes[node].wait
    assert wait is not None
    awaited = wait.awaited[source]
    if awaited.fate is AwaitedFate.LOST and awaited.resent and awaited.in_vain:
        return Supply.NEVER
    return supply(snapshot, node, wait, source)


def comes_ns(snapshot: Snapshot, node: NodeId, source: NodeId, ends: Mapping[NodeId, int], change: Change) -> int:
    """When a message comes, as far as `ends` says when its sender goes on."""
    changed = change.supply(snapshot, (node, source))
    how = given_by(snapshot, node, source) if changed is None else changed
    if how is not Supply.SURE:
        return ends.get(source, NEVER_NS) if how is Supply.IF_RELEASED else NEVER_NS
    giver, wait = snapshot.nodes[source], snapshot.nodes[node].wait
    assert wait is not None
    edge = snapshot.edge(*(wait.awaited[source].edge or (source, node)))
    later = [snapshot.at_ns]
    later += [LATER_NS] if giver.state is State.BLOCKED else []
    later += [giver.back_ns] if giver.state in DOWN and giver.back_ns is not None else []
    later += [edge.heals_ns] if not edge.up and edge.heals_ns is not None else []
    return max(later)


def ends_ns(snapshot: Snapshot, node: NodeId, ends: Mapping[NodeId, int], change: Change) -> int:
    """When the wait of a node ends: enough has come, all others are left out, or it is its deadline."""
    wait = snapshot.nodes[node].wait
    assert wait is not None
    come = {source: comes_ns(snapshot, node, source, ends, change) for source in wait.awaited}
    sure, gone = surely_gone(snapshot, node, wait), will_be_gone(snapshot, node, wait)
    out = {}
    for source in wait.awaited:
        may = snapshot.at_ns if source in sure else LATER_NS if source in gone else NEVER_NS
        out[source] = min(may, change.leaves(snapshot, (node, source)), come[source])
    enough = snapshot.at_ns if wait.short <= 0 else sorted([*come.values(), *[NEVER_NS] * wait.short])[wait.short - 1]
    left = max(out.values(), default=snapshot.at_ns)
    return min(enough, left, NEVER_NS if wait.deadline_ns is None else wait.deadline_ns)


def modelled(snapshot: Snapshot, change: Change) -> dict[NodeId, int]:
    ends = dict.fromkeys((node for node, _ in snapshot.waiting), NEVER_NS)
    while True:
        after = {node: min(ends[node], ends_ns(snapshot, node, ends, change)) for node in ends}
        if after == ends:
            return ends
        ends = after


def only(pair: Edge) -> Change:
    """A setting by which a message of one pair can come, and another's sender is left out at 15."""
    return Change(
        supply=lambda snapshot, of: Supply.SURE if of == pair else None,
        leaves=lambda snapshot, of: 15 if of == pair[::-1] else NEVER_NS,
    )


@st.composite
def with_deadlines(draw: st.DrawFn) -> Snapshot:
    found = replace(draw(fleets()), at_ns=5)
    nodes = dict(found.nodes)
    for node, wait in found.waiting:
        deadline_ns = draw(st.sampled_from([None, None, None, 12]))
        nodes[node] = replace(nodes[node], wait=replace(wait, deadline_ns=deadline_ns))
    return replace(found, nodes=nodes)


IN_VAIN = replace(lost(1, 0), resent=True, in_vain=True)


VAIN_AND_NOT = {1: FLYING, 2: replace(FLYING, in_vain=True, resent=True)}
NEEDS_NONE = waits(0, [1], need=2, have=[2, 3]), waits(1, [2, 0], need=0)
AT = {"at_ns": 5}


@given(with_deadlines())
@example(fleet(waits(0, {1: IN_VAIN}), waits(2, {0: replace(IN_VAIN, resent=False)}), is_(1, State.RUNNING), **AT))
@example(fleet(waits(0, VAIN_AND_NOT), waits(1, [0]), is_(2, State.BLOCKED), **AT))
@example(fleet(*NEEDS_NONE, is_(2, State.STOPPED), is_(3, State.PAUSED), **AT))
@example(fleet(waits(0, [1]), waits(1, [2]), is_(2, State.CRASHED, back_ns=10), **AT))
def test_each_node_goes_on_when_a_plain_model_says(snapshot: Snapshot) -> None:
    for change in (NOTHING, ENDED, only((0, 1))):
        assert goes_on(snapshot, change) == modelled(snapshot, change)


def test_a_setting_helps_where_each_root_goes_on_sooner_and_none_is_left_behind() -> None:
    snapshot = fleet(waits(0, {1: lost(1, 0)}), waits(2, {1: lost(1, 2)}), waits(3, [0]), is_(1, State.RUNNING))
    trials = Trials(snapshot, {"one": only((0, 1)), "none": NOTHING})
    assert trials.helps("one", [0])
    assert trials.helps("one", [0, 3])
    assert trials.helps("one", [0, 1]), "who does not wait is helped by nothing, and needs none"
    assert not trials.helps("one", [0, 2])
    assert not trials.helps("none", [0])
    assert not trials.helps("one", [3], ended=True), "it goes on as soon once stalls for good are over"
    steps = {node: replace(now, steps=2) for node, now in snapshot.nodes.items()}
    assert not Trials(replace(snapshot, nodes=steps), {"one": only((0, 1))}).helps("one", [0]), "node 2 stands still"
    last = {node: replace(now, steps=1) for node, now in snapshot.nodes.items()}
    assert Trials(replace(snapshot, nodes=last), {"one": only((0, 1))}).helps("one", [0])
