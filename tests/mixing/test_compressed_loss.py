"""Compression and loss together: references that a lost message leaves behind are found out, asked for, and mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_fleets import Fleet, differences, each_lost, net, normal
from compressed_server import fleet_under_loss, optimum
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.core.errors import MalformedMessage, TrainingError
from netdfl.core.types import Acknowledgement, Inbox, Kind, Message, Payload, View
from netdfl.mixing.compressed.choco import Choco
from netdfl.mixing.compressed.copies import Heard, Reference
from netdfl.mixing.compressed.deepsqueeze import DeepSqueeze
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.compressed.references import KEPT, KEPT_SURE, Differences, address
from netdfl.node.checkpoint import load_state, save_state
from netdfl.testing.equal import equal
from netdfl.training.base import Update

HERE, THERE = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5}), View(1, 0, 2, (0,), (0,), 0.5, {0: 0.5}, {0: 0.5})
EDGE = EdgePushSum(differences=differences("qsgd", mass=True))
STATIC = QuantizedPushSum(differences=differences("qsgd", mass=True))
CHOCO = Choco(differences=differences("qsgd"))


class Stream:
    """A sender of versions 1, 2, ... of a vector, and one receiver that gets what `hear` is given."""

    def __init__(self, mass: bool = True, kept: int = KEPT) -> None:
        self.differences: Differences = replace(differences("qsgd", mass=mass), kept=kept)
        self.x = normal(40, 9)
        self.heard = self.differences.first(self.x[0])
        self.reference, self.owed, self.round = self.heard.start, self.heard, 0
        self.exact: dict[int, torch.Tensor] = {}

    def say(self, epoch: int = 0) -> Message:
        before = self.reference
        self.reference, code = self.differences.send(before, self.x[self.round], replace(HERE, round=self.round), 0)
        self.owed, outbox = address(self.owed, before, code, {"share": 0.5, "w": 0.25}, [1])
        self.exact[self.reference.version] = self.reference.vector
        self.round += 1
        return Message(0, 1, Kind.DATA, epoch, self.round, 0, 0, outbox[1])

    def asked(self) -> None:
        self.owed = self.owed._replace(owed=(1,))

    def hear(self, *messages: Message) -> list[torch.Tensor]:
        self.heard, came = self.differences.receive(self.heard, Inbox(messages), THERE)
        return [each.vector for each in came.get(0, ())]

    def close(self, got: list[torch.Tensor], *versions: int) -> None:
        assert len(got) == len(versions)
        for vector, version in zip(got, versions, strict=True):
            torch.testing.assert_close(vector, self.exact[version], rtol=0, atol=1e-14)


def test_differences_in_order_are_followed_bit_for_bit() -> None:
    stream = Stream()
    for version in (1, 2, 3):
        (got,) = stream.hear(stream.say())
        assert torch.equal(got, stream.exact[version])
    assert stream.heard.asks == ()
    assert stream.heard.tally.gaps == 0


def test_a_gap_is_asked_about_once_until_an_answer_is_due() -> None:
    stream = Stream()
    stream.hear(stream.say())
    stream.say()
    asked = []
    for _ in range(4):
        assert stream.hear(stream.say()) == []
        asked.append(stream.heard.asks == (0,))
        stream.heard = stream.heard._replace(asks=())
    assert asked == [True, False, True, False]
    assert stream.heard.tally.gaps == 4


def test_a_full_reference_settles_what_waited_backwards() -> None:
    stream = Stream()
    stream.hear(stream.say())
    stream.say()
    stream.hear(stream.say(), stream.say())
    stream.asked()
    stream.close(stream.hear(stream.say()), 4, 3, 5)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[5])
    assert stream.heard.tally.lost_w == 0
    assert stream.owed.tally == (0, 0, 1, 9 * 8)
    (after,) = stream.hear(stream.say())
    assert torch.equal(after, stream.exact[6])


def test_what_lies_behind_a_second_gap_waits_for_it_and_is_lost_at_last() -> None:
    stream = Stream()
    stream.say()
    stream.hear(stream.say())
    stream.say()
    stream.hear(stream.say())
    stream.asked()
    stream.close(stream.hear(stream.say()), 4, 5)
    for version in range(6, 12):
        stream.close(stream.hear(stream.say()), version)
    assert stream.heard.tally.lost_w == 0
    stream.close(stream.hear(stream.say()), 12)
    assert stream.heard.tally.lost_w == 0.25
    assert stream.heard.copies[0].holes == ()


def test_in_any_order_everything_is_settled_once() -> None:
    stream = Stream()
    m = {version: stream.say() for version in range(1, 6)}
    assert stream.hear(m[2]) == []
    stream.asked()
    m[6] = stream.say()
    stream.close(stream.hear(m[4]))
    stream.close(stream.hear(m[6]), 6)
    stream.close(stream.hear(m[5]), 5, 4)
    assert stream.hear(m[1]) == []
    stream.close(stream.hear(m[3]), 3, 2, 1)
    assert stream.heard.tally.lost_w == 0


@given(st.lists(st.integers(0, 25), min_size=10, max_size=40))
@example([0, 9, 0, 12, 0, 0, *[0] * 14])  # a second gap behind the first, and both closed late
@example([25, *[0] * 30])
def test_where_all_comes_in_the_end_nothing_is_lost_however_late_it_is(delays: list[int]) -> None:
    stream, due = Stream(kept=KEPT_SURE), dict[int, list[Message]]()
    settled: list[torch.Tensor] = []
    for tick in range(len(delays) + 26):
        if stream.heard.asks:
            stream.heard = stream.heard._replace(asks=())
            stream.asked()
        if tick < len(delays):
            due.setdefault(tick + delays[tick], []).append(stream.say())
        settled += stream.hear(*due.pop(tick, []))
    assert len(settled) == len(delays)
    for exact in stream.exact.values():
        assert min(float((exact - vector).abs().max()) for vector in settled) < 1e-13
    assert stream.heard.tally.lost_w == 0
    assert stream.heard.copies[0].pending == stream.heard.copies[0].holes == ()


def test_a_late_difference_closes_its_gap() -> None:
    stream = Stream()
    late, *others = (stream.say() for _ in range(3))
    assert stream.hear(*others) == []
    stream.close(stream.hear(late), 1, 2, 3)
    assert stream.heard.copies[0].pending == ()


def test_a_difference_that_comes_after_its_resynchronisation_still_counts() -> None:
    stream = Stream()
    late = stream.say()
    stream.asked()
    stream.close(stream.hear(stream.say()), 2)
    stream.close(stream.hear(late), 1)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[2])


def test_a_sender_that_returns_from_an_older_state_is_not_believed_until_it_says_all() -> None:
    stream = Stream()
    stream.hear(stream.say())
    old = stream.reference
    stream.hear(stream.say(), stream.say())
    stream.reference = old
    assert stream.hear(stream.say(epoch=1)) == []
    assert stream.heard.asks == (0,)
    stream.asked()
    stream.close(stream.hear(stream.say(epoch=1)), 2, 3)


def test_a_sender_that_returns_with_its_state_goes_on_where_it_was() -> None:
    stream = Stream()
    stream.hear(stream.say())
    (got,) = stream.hear(stream.say(epoch=1))
    assert torch.equal(got, stream.exact[2])
    assert stream.heard.asks == ()


@pytest.mark.parametrize(("heard", "kept"), [(1, 0), (3, 2), (4, 1)])
def test_a_new_life_that_reaches_the_old_ones_version_unheard_is_found_out(heard: int, kept: int) -> None:
    """It began afresh, or from an older state, and the receiver missed what it said on the way to the same number."""
    stream = Stream()
    lives = [stream.reference]
    for _ in range(heard):
        stream.hear(stream.say())
        lives.append(stream.reference)
    stream.reference = lives[kept]
    for _ in range(kept, heard):
        stream.say(epoch=1)
    assert stream.hear(stream.say(epoch=1)) == []
    assert stream.heard.asks == (0,)
    assert stream.heard.tally.gaps == 1
    stream.asked()
    stream.close(stream.hear(stream.say(epoch=1)), heard + 1, heard + 2)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[heard + 2])
    assert stream.owed.tally == (0, 0, 1, 9 * 8)


def test_what_waits_of_an_earlier_life_is_not_taken_for_the_new_ones() -> None:
    stream = Stream()
    stream.hear(stream.say())
    kept = stream.reference
    stream.say()
    assert stream.hear(stream.say()) == []
    stream.reference = kept
    stream.close(stream.hear(stream.say(epoch=1), stream.say(epoch=1)), 2, 3)
    assert torch.equal(stream.heard.copies[0].vector, stream.exact[3])
    assert stream.heard.tally.lost_w == 0.25


def test_a_sender_that_returns_with_another_start_is_not_believed() -> None:
    stream = Stream()
    stream.differences = replace(stream.differences, common_start=True)
    stream.heard = stream.differences.first(stream.x[0])
    stream.reference = stream.differences.first(stream.x[5]).start
    assert stream.hear(stream.say()) == []
    assert stream.heard.asks == (0,)


def test_no_more_than_a_few_differences_wait() -> None:
    stream = Stream()
    stream.say()
    for _ in range(11):
        stream.hear(stream.say())
    assert len(stream.heard.copies[0].pending) == 8
    assert stream.heard.tally.lost_w == 0.75


def test_gossip_keeps_no_differences_that_it_can_not_decode() -> None:
    stream = Stream(mass=False)
    stream.say()
    stream.hear(stream.say())
    assert stream.heard.copies[0].pending == ()
    assert stream.heard.asks == (0,)


@pytest.mark.parametrize("on_missing", ["self", "last"])
def test_choco_recovers_from_loss(on_missing: Any) -> None:
    """Under 10 % loss for 40 rounds copies are mended, and without loss nodes agree as ever, on a mean that moved."""
    fleet = Fleet(replace(CHOCO, on_missing=on_missing), net("grid", 9), normal(9, 64), each_lost(0.1, 40)).play(200)
    z = torch.stack(fleet.x)
    assert float((z - z.mean(0)).abs().max()) < 1e-6
    assert fleet.error() < 0.5
    for i, state in enumerate(fleet.states):
        for j, copy in state.heard.copies.items():
            assert torch.equal(copy.vector, fleet.states[j].own.vector), (i, j)
    tallies = [state.heard.tally for state in fleet.states]
    assert sum(t.resyncs for t in tallies) > 10
    assert sum(t.resync_bytes for t in tallies) == 64 * 8 * sum(t.resyncs for t in tallies)


@pytest.mark.parametrize(("mixing", "graph"), [(EDGE, {}), (STATIC, {"redraw_every": 0})])
def test_push_sum_loses_what_the_network_loses_and_nothing_else(mixing: Any, graph: dict[str, Any]) -> None:
    """Nodes, what waits, lost messages, and the little behind a second gap hold all of w, at every round."""
    fleet = Fleet(mixing, net("random_push", 8, out_neighbors=3, **graph), normal(8, 32), each_lost(0.1, 60))
    for _ in range(80):
        fleet.play(1)
        lost = sum(float(m.payload.meta.get("w", 0.0)) for m in fleet.lost_messages)
        waits = sum(p.share.w for s in fleet.states for c in s.heard.copies.values() for p in c.pending)
        behind = sum(s.heard.tally.lost_w for s in fleet.states)
        assert float(fleet.weights.sum()) + waits + lost + behind == pytest.approx(8, abs=1e-12)
    assert behind < 0.2 * lost
    assert sum(s.heard.tally.gaps for s in fleet.states) > 5
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-3
    assert waits == 0


def test_deepsqueeze_needs_no_mending() -> None:
    squeeze = DeepSqueeze(compressor=differences("qsgd").compressor)
    fleet = Fleet(squeeze, net("random_sym", 9), normal(9, 64), each_lost(0.1, 40)).play(150)
    z = torch.stack(fleet.x)
    assert float((z - z.mean(0)).abs().max()) < 0.1


def test_each_loss_moves_deepsqueezes_mean_for_good_and_chocos_only_until_nodes_agree() -> None:
    how, start = differences("top_k", fraction=0.25), normal(8, 32)
    shifts = []
    for mixing in (DeepSqueeze(compressor=how.compressor), Choco(differences=how)):
        fleet = Fleet(mixing, net("ring", 8), start, each_lost(0.1))
        shifts.append([float((fleet.play(n).total / 8 - start.mean(0)).square().mean().sqrt()) for n in (50, 150)])
    (squeeze, later), (choco, settled) = shifts
    assert later > 1.5 * squeeze
    assert settled == pytest.approx(choco, rel=1e-3)


def test_ef21_at_a_server_survives_lost_reports() -> None:
    assert float((fleet_under_loss("ef21", 0.1) - optimum()).norm()) < 1e-7


@pytest.mark.parametrize("mixing", [CHOCO, EDGE, STATIC], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("kept", [True, False])
def test_a_crash_and_restart(mixing: Any, kept: bool, tmp_path: Path) -> None:
    """With kept state nothing happens; without, copies are mended at the price of full references."""
    options = {"out_neighbors": 3, "redraw_every": 0}
    network = net("random_push", 8, **options) if mixing.push else net("grid", 8)
    fleet = Fleet(mixing, network, normal(8, 32)).play(10)
    undisturbed = Fleet(mixing, network, normal(8, 32)).play(30)
    first = mixing.init(fleet.start[2], network.view(2, 0))
    if kept:
        save_state(fleet.states[2], tmp_path / "2")
        fleet.states[2] = load_state(tmp_path / "2", first)
    else:
        fleet.states[2], fleet.x[2] = first, fleet.start[2].clone()
    fleet.epochs[2] = 1
    fleet.play(20)
    if kept:
        assert torch.equal(torch.stack(fleet.x), torch.stack(undisturbed.x))
        return
    assert sum(s.heard.tally.resyncs for s in fleet.states) > 0
    fleet.play(80)
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-5


@pytest.mark.parametrize("mixing", [CHOCO, EDGE, STATIC], ids=lambda m: type(m).__name__)
def test_a_crash_whose_first_message_afterwards_is_lost(mixing: Any) -> None:
    """Versions fit then, contents do not: both neighbors ask, and their copies are mended bit for bit."""
    network = net("ring", 4)
    fleet = Fleet(mixing, network, normal(4, 40), lambda m: (m.src, m.dst, m.epoch, m.round) == (3, 0, 1, 1)).play(1)
    fleet.states[3], fleet.x[3] = mixing.init(fleet.start[3], network.view(3, 0)), fleet.start[3].clone()
    fleet.epochs[3] = 1
    fleet.play(79)
    copy, sender = fleet.states[0].heard.copies[3], fleet.states[3]
    assert torch.equal(copy.vector, (sender.sent[0] if mixing is EDGE else sender.own).vector)
    assert fleet.states[0].heard.tally.gaps > 0
    assert sender.heard.tally.resyncs == 2
    z = torch.stack(fleet.x) / fleet.weights[:, None]
    assert float((z - z.mean(0)).abs().max()) < 1e-9


@pytest.mark.parametrize(
    "mixing",
    [CHOCO, EDGE, STATIC, DeepSqueeze(compressor=CHOCO.differences.compressor)],
    ids=lambda m: type(m).__name__,
)
def test_state_survives_save_and_load_while_something_waits(mixing: Any, tmp_path: Path) -> None:
    network = net("random_push", 6, out_neighbors=2, redraw_every=0) if mixing.push else net("ring", 6)
    fleet = Fleet(mixing, network, normal(6, 16), each_lost(0.3)).play(6)
    for i, state in enumerate(fleet.states):
        save_state(state, tmp_path / "state")
        assert equal(load_state(tmp_path / "state", mixing.init(fleet.start[i], network.view(i, 0))), state)


@pytest.mark.parametrize(
    "meta",
    [
        {"version": 0},
        {"version": 1.5},
        {"version": 1, "after": "none"},
        {"version": 1, "mark": -4},
        {"version": 1, "share": float("nan")},
        {"ask": "all"},
        {"version": 1, "code": 3},
        {"version": 1, "passes": 2},
        {"version": 1, "passes": 10**9},
    ],
)
def test_absurd_metadata_is_refused_with_the_message(meta: dict[str, Any]) -> None:
    stream = Stream()
    sound = stream.say()
    message = sound._replace(payload=Payload(sound.payload.arrays, {**sound.payload.meta, **meta}))
    with pytest.raises(MalformedMessage) as refused:
        stream.hear(message)
    assert refused.value.message is message


def test_a_difference_of_another_size_is_refused() -> None:
    stream = Stream()
    stream.heard = Heard(Reference(torch.zeros(5, dtype=torch.float64)), {})
    with pytest.raises(MalformedMessage, match="message 0->1"):
        stream.hear(stream.say())


def test_a_model_that_is_not_finite_is_refused() -> None:
    x = torch.tensor([1.0, float("inf")])
    with pytest.raises(TrainingError, match=r"^can't compress: x\[1\] is inf"):
        CHOCO.outgoing(CHOCO.init(x, HERE), Update(x, x), 0, HERE)


def test_what_a_receiver_refuses_is_the_senders_again() -> None:
    """Three versions refused in a row, and one that was taken before: the sums are exact."""
    x, view = normal(1, 12)[0], HERE
    state = EDGE.init(x, view)
    refused: list[Message] = []
    current = Update(x, x)
    taken_x, taken_w = torch.zeros_like(x), 0.0
    for round in range(4):
        now = replace(view, round=round)
        state, outbox = EDGE.outgoing(state, current, 0, now)
        message = Message(0, 1, Kind.DATA, 0, round, 0, 0, outbox[1])
        if round == 0:
            share = float(message.payload.meta["w"])  # type: ignore[arg-type]
            taken_x, taken_w = state.sent[1].vector * share, share
        else:
            refused.append(message)
        answers = [Acknowledgement(message, False) for message in refused] if round == 3 else []
        mixed = EDGE.mix(state, current, Inbox(acknowledgements=answers), 0, now)
        state, current = mixed.state, mixed.update
    torch.testing.assert_close(current.x + taken_x, x, rtol=0, atol=1e-14)
    assert state.weight + taken_w == pytest.approx(1.0, abs=1e-14)
