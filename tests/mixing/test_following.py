"""How a receiver follows its sender's reference, in whatever order messages come; how fast compressed gossip steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from netdfl.compression.arrays import snapshot
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message, Payload, View
from netdfl.mixing.compressed.copies import (
    Copy,
    Hole,
    Pending,
    PushShare,
    Tally,
    catch_up,
    follows,
    holding,
    settle,
    split,
    weight_of,
)
from netdfl.mixing.compressed.references import FULL, KEPT, Differences, Reference
from netdfl.mixing.compressed.step_size import ScaledCompressor, StepSize, first_step_size, trial, watch

ZERO = torch.zeros(2)


def at(number: float) -> Tensor:
    return torch.full((2,), float(number))


def pending(version: int, *, after: int | None = None, mark: int | None = None, w: float = 0.0) -> Pending:
    """The difference to a version, by as much as its number; marks are the versions'."""
    before, now = (version - 1 if after is None else after), (version if mark is None else mark)
    return Pending(version, before, now, at(version), PushShare(1.0, w))


# copies by hand


def test_what_waits_is_in_the_order_of_versions_with_the_weight_that_came_along() -> None:
    copy = holding(holding(holding(Copy(ZERO), pending(3, w=0.25)), pending(2, w=0.5)), pending(5))
    assert [each.version for each in copy.pending] == [2, 3, 5]
    assert weight_of(copy.pending) == 0.75
    assert follows(copy, 1, 0)
    assert not follows(copy, 1, 7)
    assert not follows(copy, 2, 0)


def test_what_waited_is_decoded_as_far_as_none_is_missing() -> None:
    copy = Copy(at(10), 1, 1, pending=(pending(2, w=0.1), pending(3, w=0.2), pending(5, w=0.4)), asked=5)
    found = catch_up(copy, KEPT)
    assert [(float(each.vector[0]), each.share.w) for each in found.came] == [(12.0, 0.1), (15.0, 0.2)]
    assert (found.copy.version, found.copy.mark, float(found.copy.vector[0])) == (3, 3, 15.0)
    assert ([each.version for each in found.copy.pending], found.copy.asked, found.lost_w) == ([5], 5, 0.0)
    assert catch_up(found.copy._replace(version=4, mark=4), KEPT).copy.asked == 0, "nothing waits any more"


def test_what_waited_for_the_same_version_of_an_earlier_life_is_lost_and_named() -> None:
    stranger = pending(2, after=99, w=0.5)
    found = catch_up(Copy(ZERO, 1, 1, pending=(stranger, pending(2, w=0.25), pending(3, after=88, w=0.125))), KEPT)
    assert sum(each.share.w for each in found.came) + found.lost_w + weight_of(found.copy.pending) == 0.875
    alone = catch_up(Copy(ZERO, 1, 1, pending=(stranger,)), KEPT)
    assert (alone.came, alone.lost_w, alone.copy.pending) == ((), 0.5, ())
    assert alone.copy.version == 1


def test_holes_are_forgotten_when_they_are_long_past_and_what_waited_below_them_is_lost() -> None:
    hole = Hole(at(4), 4, 4, 2)
    waiting = pending(3, w=0.5)
    near = catch_up(Copy(ZERO, 4 + 8, 12, holes=(hole,), pending=(waiting,)), 8)
    assert (near.copy.holes, near.copy.pending, near.lost_w) == ((hole,), (waiting,), 0.0)
    far = catch_up(Copy(ZERO, 4 + 9, 13, holes=(hole,), pending=(waiting,)), 8)
    assert (far.copy.holes, far.copy.pending, far.lost_w) == ((), (), 0.5)
    below = catch_up(Copy(ZERO, 5, 5, holes=(hole,), pending=(pending(2, w=0.25),)), 8)
    assert (below.copy.pending, below.lost_w) == ((), 0.25), "at its floor nothing can be settled"


def test_a_hole_is_walked_back_through_what_waited_to_the_next_missing_one() -> None:
    hole = Hole(at(14), 5, 5, 1)
    found = settle(Copy(ZERO, 9, 9, pending=(pending(5, w=0.1), pending(4, w=0.2), pending(2, w=0.4)), holes=(hole,)))
    assert [(float(each.vector[0]), each.share.w) for each in found.came] == [(14.0, 0.1), (9.0, 0.2)]
    assert found.copy.holes == (Hole(found.copy.holes[0].vector, 3, 3, 1),)
    assert float(found.copy.holes[0].vector[0]) == 5.0
    assert [each.version for each in found.copy.pending] == [2]
    closed = settle(found.copy._replace(pending=(pending(3), pending(2))))
    assert [float(each.vector[0]) for each in closed.came] == [5.0, 2.0]
    assert (closed.copy.holes, closed.copy.pending) == ((), ())
    other = settle(Copy(ZERO, 9, 9, pending=(pending(5, mark=77),), holes=(hole,)))
    assert (other.came, other.copy.holes) == ((), (hole,)), "of another life"


@pytest.mark.parametrize(("version", "floors"), [(1, [(1, 1), (5, 2)]), (3, [(3, 1), (5, 4)]), (4, [(4, 1), (5, 5)])])
def test_a_hole_is_split_where_a_later_jump_lands_in_it(version: int, floors: list[tuple[int, int]]) -> None:
    hole, other = Hole(at(5), 5, 5, 1), Hole(at(9), 9, 9, 8)
    found = split((other, hole), Hole(at(3), version, 3, 0))
    assert found[0] is other
    assert [(each.version, each.floor) for each in found[1:]] == floors
    for outside in (0, 5, 6):
        assert split((hole,), Hole(at(3), outside, 3, 0)) == (hole,)


def test_what_desynchronised_references_cost_has_names() -> None:
    assert Tally(1, 0.5, 2, 8).figures() == {
        "reference_gaps": 1.0,
        "reference_lost_w": 0.5,
        "reference_resyncs": 2.0,
        "reference_resync_bytes": 8.0,
    }
    assert not any(Tally().figures().values())


# a sender and a receiver


def sent(differences: Differences, num: int, dim: int, full: set[int]) -> Iterator[tuple[Reference, Message]]:
    """Messages of one sender, each with the reference that a receiver then knows; some in full as well."""
    rng = np.random.default_rng(num)
    own = differences.first(torch.zeros(dim, dtype=torch.float64)).start
    view = View(1, 0, 2, (0,), (0,), 0.5, {0: 0.5}, {0: 0.5})
    for number in range(num):
        before = own
        own, code = differences.send(own, torch.from_numpy(rng.standard_normal(dim)), view._replace(round=number), 0)
        arrays: dict[str, Any] = dict(code.arrays)
        if number in full:
            arrays = {FULL: snapshot(before.vector), **arrays}
        payload = Payload(arrays, {**code.meta, "share": 0.5, "w": 2.0**-number})
        yield own, Message(1, 0, Kind.DATA, 0, number, 0, 0, payload)


@pytest.mark.parametrize("seed", range(40))
def test_in_any_order_with_losses_every_share_is_decoded_as_the_sender_means_it_waits_or_is_named_lost(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    num, dim, kept = 9, 6, int(rng.choice([2, KEPT]))
    differences = Differences(
        compressor=COMPRESSORS["top_k"](fraction=0.5), streams=Streams(seed), common_start=True, mass=True, kept=kept
    )
    full = {int(number) for number in rng.choice(num, rng.integers(0, 4), replace=False)}
    messages = list(sent(differences, num, dim, full))
    order = [int(number) for number in np.argsort(np.arange(num) + rng.uniform(0, rng.choice([0, 3, 20]), num))]
    order = [number for number in order if rng.random() > 0.2]
    heard = differences.first(torch.zeros(dim, dtype=torch.float64))
    view = View(0, 0, 2, (1,), (1,), 0.5, {1: 0.5}, {1: 0.5})
    arrived, decoded = 0.0, 0.0
    for number in order:
        heard, came = differences.receive(heard, Inbox([messages[number][1]]), view)
        arrived += 2.0**-number
        for each in came.get(1, ()):
            decoded += each.share.w
            version = int(np.log2(1 / each.share.w))
            assert torch.allclose(each.vector, messages[version][0].vector, atol=1e-9), "the sender's own reference"
        copy = heard.copies[1]
        assert arrived == decoded + heard.tally.lost_w + weight_of(copy.pending)
        if copy.version > 0:
            assert torch.allclose(copy.vector, messages[copy.version - 1][0].vector, atol=1e-9)
    if order == list(range(num)):
        assert decoded == arrived
        assert heard.tally.gaps == 0


# step sizes


class Halving(Compressor):
    """Says half of everything; it can't be a key of a dictionary."""

    def __init__(self, factor: float = 0.5, bound: Any = lambda dim: 0.25) -> None:
        self.factor, self.bound = factor, bound

    __hash__ = None  # type: ignore[assignment]

    def variance(self, dim: int) -> float:
        return float(self.bound(dim))

    def compress(self, x: Tensor, rng: np.random.Generator) -> EncodedVector:
        return EncodedVector(x.numel(), {}, {"x": tuple(x.tolist())})  # type: ignore[dict-item]

    def decompress(self, encoded: EncodedVector) -> Tensor:
        return torch.tensor(encoded.meta["x"], dtype=torch.float64) * self.factor


@pytest.mark.parametrize(
    ("factor", "part"), [(0.0, 1.0), (0.05, 1.0), (0.5, 1.0), (1.0, 1.0), (2.0, 0.5), (4.1, 0.25), (-1.0, 1.0)]
)
def test_a_compressor_that_says_too_much_is_damped_by_a_power_of_two(factor: float, part: float) -> None:
    steady = ScaledCompressor(Halving(factor))
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    encoded = steady.compress(x, np.random.default_rng(0))
    assert steady.part(2) == part
    assert torch.equal(steady.decompress(encoded), x * factor * part)
    assert torch.equal(steady.add_to(x, encoded), x + x * factor * part)
    assert steady.variance(2) == pytest.approx(((1 - part) + part * 0.5) ** 2)
    found = trial(Halving(factor), 5)
    assert found.kept == pytest.approx(1 - (1 - factor) ** 2)
    assert found.part == pytest.approx(1 / factor if factor > 0 else 1.0)


class Noisy(Halving):
    """Adds what torch draws, wherever its generator was."""

    def decompress(self, encoded: EncodedVector) -> Tensor:
        return super().decompress(encoded) + torch.randn(encoded.dim)


def test_a_users_own_compressor_draws_the_same_in_every_trial_and_nothing_of_the_runs() -> None:
    before = torch.get_rng_state()
    found = trial(Noisy(1.0), 6)
    assert torch.equal(torch.get_rng_state(), before)
    noise = torch.randn(6, generator=torch.Generator().manual_seed(0)).double()
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(6))
    assert found.kept == pytest.approx(1 - float(noise.square().sum() / x.square().sum()))


@pytest.mark.parametrize(
    ("factor", "common", "gamma"),
    [(1.0, False, 1.0), (1.0, True, 1.0), (0.5, True, 0.75), (0.5, False, 0.9 * 0.75**2 + 0.1 * 0.75)]
    + [(-1.0, common, 0.001) for common in (False, True)]
    + [(0.01, False, 0.00995), (1 - 0.97**0.5, False, 0.01)],
)
def test_the_first_step_goes_by_what_is_kept(factor: float, common: bool, gamma: float) -> None:
    found = first_step_size("auto", Halving(factor), 9, common_start=common)
    wanted = gamma if factor > -1 else max(0.001, 0.002 if common else 0.9 * 0.002**2 + 0.1 * 0.002)
    assert found.gamma == pytest.approx(wanted, rel=1e-6)
    assert (found.age, found.distance) == (0, -1.0)
    assert first_step_size(0.3, Halving(factor), 9) == StepSize(0.3)


def test_gamma_is_looked_at_in_rounds_4_8_16_and_halved_where_models_part_by_more_than_eight_times() -> None:
    own, weights = torch.zeros(2), {1: 0.5, 2: 0.25}

    def distant(square: float) -> dict[int, Tensor]:
        return {2: own, 1: torch.tensor([2 * square, 0.0]).sqrt(), 9: torch.ones(2)}

    step, looked = StepSize(0.5), []
    for round in range(1, 40):
        step = watch(step, own, distant(1.0), weights)
        looked += [round] if step.distance >= 0 and step.age == round and not round & (round - 1) else []
    assert looked == [4, 8, 16, 32]
    assert (step.gamma, step.age) == (0.5, 39)
    assert step.distance == pytest.approx(1.0)
    before = StepSize(0.5, 7, 1.0)
    assert watch(before, own, distant(7.9), weights).gamma == 0.5
    assert watch(before, own, distant(8.1), weights)[:2] == (0.25, 0)
    assert watch(StepSize(0.5, 7), own, distant(100.0), weights).gamma == 0.5, "nothing to compare with"
    huge = torch.full((2,), 1e6)
    assert watch(StepSize(0.5, 7, 1e-9), huge, {1: huge + 1.0}, weights).gamma == 0.5, "rounding"
