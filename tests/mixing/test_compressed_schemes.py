"""Compressed mixing without loss: what never changes, how fast nodes agree, and what it reduces to."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from compressed_fleets import Fleet, differences, net, normal
from compressed_server import gradient_descent_and_ef21, server_gap

from netdfl.algorithms.base import Entry
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.compressed_parts import directed, undirected
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Kind, Message
from netdfl.mixing.compressed.gossip import Choco, DeepSqueeze
from netdfl.mixing.compressed.literal import BareModel, LiteralQuantized
from netdfl.mixing.compressed.push_sum import EdgePushSum, QuantizedPushSum
from netdfl.mixing.compressed.step_size import ScaledCompressor, StepSize, sample_size, trial, watch
from netdfl.mixing.gossip import Gossip
from netdfl.mixing.push_sum import PushSum
from netdfl.testing.contract import CHECKS
from netdfl.testing.rounds import first_states, play_rounds
from netdfl.training.base import Update
from netdfl.training.catalog import quadratic


class Passes:
    """Loses nothing, and counts the messages that hold more than one pass of the compressor."""

    def __init__(self) -> None:
        self.messages = self.further = 0

    def __call__(self, message: Message) -> bool:
        self.messages += 1
        self.further += message.payload.meta.get("passes", 1) != 1
        return False


def mixings(name: str, **options: Any) -> dict[str, Any]:
    """Every scheme of gossip and push-sum with the compressor `name`."""
    compressor = COMPRESSORS[name](**options)
    return {
        "choco": Choco(differences=differences(name, **options)),
        "delicoco": Choco(differences=differences(name, **options), steps=3),
        "deepsqueeze": DeepSqueeze(compressor=compressor),
        "edge": EdgePushSum(differences=differences(name, mass=True, **options)),
        "push_sum": QuantizedPushSum(differences=differences(name, mass=True, **options)),
    }


@pytest.mark.parametrize("scheme", mixings("qsgd"))
@pytest.mark.parametrize("name", COMPRESSORS)
def test_the_sums_of_x_and_w_never_change(name: str, scheme: str) -> None:
    mixing = mixings(name)[scheme]
    network = net("random_push", 8, out_neighbors=3, redraw_every=scheme == "edge") if mixing.push else net("grid", 9)
    fleet = Fleet(mixing, network, normal(network.num_nodes, 40))
    for _ in range(6):
        fleet.play(1)
        torch.testing.assert_close(fleet.total, fleet.start.sum(0), rtol=0, atol=1e-12)
        assert float(fleet.weights.sum()) == pytest.approx(network.num_nodes, abs=1e-12)


@pytest.mark.soak
def test_choco_on_a_grid_contracts_at_the_measured_rate() -> None:
    """ALGORITHMS.md 16.4: factor .983 a step over steps 100 to 300; 40 before them tell."""
    fleet = Fleet(
        Choco(differences=differences("top_k", fraction=0.1), gamma=0.1), net("grid", 25, "metropolis"), normal(25, 200)
    )
    errors: list[float] = []
    fleet.play(120, lambda: errors.append(fleet.squared()))
    slope = np.polyfit(np.arange(80, 120), np.log(errors[80:]), 1)[0]
    assert math.exp(slope) == pytest.approx(0.983, abs=0.005)


@pytest.mark.parametrize(("bits", "below", "seed"), [pytest.param(8, 1e-8, 0, marks=pytest.mark.soak), (4, 1e-4, 1)])
def test_edge_referenced_push_sum_on_a_graph_redrawn_every_round(bits: int, below: float, seed: int) -> None:
    mixing = EdgePushSum(differences=differences("qsgd", mass=True, bits=bits))
    fleet = Fleet(mixing, net("random_push", 16, seed=seed, out_neighbors=4), normal(16, 64)).play(30)
    torch.testing.assert_close(fleet.total, fleet.start.sum(0), rtol=0, atol=1e-12)
    assert fleet.error() < below


def test_an_edge_whose_reference_is_old_gets_further_passes_and_both_ends_follow_them() -> None:
    start, network = normal(12, 40, torch.float32), net("random_push", 12, out_neighbors=2)
    fleet = Fleet(EdgePushSum(differences=differences("qsgd", mass=True)), network, start, watch_passes := Passes())
    fleet.play(15)
    assert 0 < watch_passes.further < 0.5 * watch_passes.messages
    for i, state in enumerate(fleet.states):
        for j, copy in state.heard.copies.items():
            assert torch.equal(copy.vector, fleet.states[j].sent[i].vector), (i, j)


def test_passes_that_do_not_pay_are_not_sent() -> None:
    """Top-10 % leaves most of a difference, and so would every further pass."""
    fleet = Fleet(
        EdgePushSum(differences=differences("top_k", mass=True, fraction=0.1)),
        net("random_push", 12, out_neighbors=2),
        normal(12, 40),
        watch_passes := Passes(),
    ).play(15)
    assert fleet.round == 15
    assert watch_passes.further == 0


@pytest.mark.parametrize(
    ("scheme", "name", "options", "rounds", "below"),
    [
        pytest.param("choco", "qsgd", {"bits": 8}, 80, 1e-6, marks=pytest.mark.soak),
        pytest.param("choco", "qsgd", {"bits": 4}, 80, 1e-6, marks=pytest.mark.soak),  # Choco is in delicoco's row, too
        ("choco", "top_k", {"fraction": 0.25}, 80, 1e-3),
        pytest.param("choco", "random_k", {"fraction": 0.5}, 120, 1e-3, marks=pytest.mark.soak),
        ("delicoco", "qsgd", {"bits": 4}, 40, 1e-9),
        ("push_sum", "qsgd", {"bits": 8}, 40, 1e-6),
        ("push_sum", "top_k", {"fraction": 0.25}, 50, 1e-3),
        pytest.param("edge", "float16", {}, 50, 1e-6, marks=pytest.mark.soak),
        ("edge", "top_k", {"fraction": 0.25}, 50, 1e-2),
    ],
)
def test_nodes_agree_without_gradient(
    scheme: str, name: str, options: dict[str, Any], rounds: int, below: float
) -> None:
    mixing = mixings(name, **options)[scheme]
    network = net("random_push", 9, out_neighbors=3, redraw_every=0) if mixing.push else net("grid", 9)
    assert Fleet(mixing, network, normal(9, 200)).play(rounds).error() < below


def test_deepsqueeze_stops_where_the_compressor_on_the_model_does() -> None:
    """It compresses models: without a falling step size it agrees to about the quantizer's step, not below."""
    error = Fleet(DeepSqueeze(compressor=COMPRESSORS["qsgd"]()), net("random_sym", 9), normal(9, 200)).play(60).error()
    assert 1e-4 < error < 0.1


def test_unscaled_coarse_quantization_diverges_under_choco_and_scaled_does_not() -> None:
    unscaled, scaled = ({"levels": 7, "norm": "l2", "bucket": 0, "scaled": scaled} for scaled in (False, True))
    start, network = normal(9, 512), net("grid", 9)
    diverging = Fleet(Choco(differences=differences("qsgd", **unscaled), gamma=0.3), network, start).play(60)
    agreeing = Fleet(Choco(differences=differences("qsgd", **scaled), gamma=0.3), network, start).play(60)
    assert diverging.error() > 10
    assert agreeing.error() < 0.05


def test_an_automatic_gamma_backs_off_where_models_part() -> None:
    coarse = differences("qsgd", levels=7, norm="l2", bucket=0)
    mixing = Choco(differences=coarse)
    fleet = Fleet(mixing, net("grid", 9), normal(9, 512))
    fleet.states = [state._replace(step=StepSize(0.3)) for state in fleet.states]
    fleet.play(60)
    assert all(state.step.gamma < 0.3 for state in fleet.states)
    assert fleet.error() < 1e-2 * Fleet(replace(mixing, gamma=0.3), fleet.network, fleet.start).play(60).error()


def test_drift_apart_at_a_constant_speed_is_no_reason_to_back_off() -> None:
    step, own = StepSize(0.5), torch.zeros(4)
    for t in range(1, 200):
        step = watch(step, own, {1: torch.full((4,), float(t))}, {1: 0.5})
    assert step.gamma == 0.5
    for t in range(64):
        step = watch(step, own, {1: torch.full((4,), 1.2**t)}, {1: 0.5})
    assert step.gamma < 0.5


NOISY: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("random_k", {"fraction": 0.9, "count": 4, "unbiased": True}),
    "two bits": ("qsgd", {"bits": 2}),
    "whole norm": ("qsgd", {"levels": 7, "norm": "l2", "bucket": 0}),
}
STEADIED = ("random", "edge"), ("random", "deepsqueeze"), ("two bits", "push_sum"), ("whole norm", "choco")
"""Each of them once, and each scheme; the rest is for the soak."""


@pytest.mark.parametrize(
    ("noisy", "scheme"),
    [
        pytest.param(*row, marks=[] if row in STEADIED else [pytest.mark.soak])
        for row in product(NOISY, ("choco", "deepsqueeze", "edge", "push_sum"))
    ],
)
def test_a_compressor_that_adds_more_than_it_keeps_is_steadied(noisy: str, scheme: str) -> None:
    """Bare, |x - h| grows without end at any step size."""
    name, options = NOISY[noisy]
    compressor = COMPRESSORS[name](**options)
    build = directed if scheme in ("edge", "push_sum") else partial(undirected, steps=1)
    mixing: Any = build(Exchange(compressor=compressor, scheme=scheme, streams=Streams(5)))  # type: ignore[arg-type]
    network = net("random_push", 6, out_neighbors=2, redraw_every=scheme == "edge") if mixing.push else net("ring", 6)
    fleet = Fleet(mixing, network, normal(6, 400)).play(60)
    first = float((fleet.start - fleet.start.mean(0)).abs().max())
    assert fleet.error() < (1.5 if noisy == "random" else 0.5) * first


@pytest.mark.parametrize("name", COMPRESSORS)
def test_what_is_no_noise_is_not_damped(name: str) -> None:
    steady = ScaledCompressor(COMPRESSORS[name]())
    x, rng = normal(1, 600)[0], np.random.default_rng
    assert steady.part(600) == 1.0
    assert torch.equal(
        steady.decompress(steady.compress(x, rng(1))), steady.inner.decompress(steady.inner.compress(x, rng(1)))
    )
    assert steady.variance(600) == pytest.approx(steady.inner.variance(600))


@pytest.mark.parametrize(("count", "part"), [(300, 1.0), (100, 0.25), (7, 2.0**-6)])
def test_steadied_random_sums_contract(count: int, part: float) -> None:
    """E|x - a C(x)|^2 = ((1 - a)^2 + a^2 (d / k - 1)) |x|^2, and no vector is above the bound."""
    steady = ScaledCompressor(COMPRESSORS["random_k"](count=count, unbiased=True))
    assert steady.part(400) == part
    x, rng = normal(1, 400)[0], np.random.default_rng(3)
    lost = [float((steady.decompress(steady.compress(x, rng)) - x).square().sum()) for _ in range(400)]
    expected = (1 - part) ** 2 + part**2 * (400 / count - 1)
    assert np.mean(lost) / float(x.square().sum()) == pytest.approx(expected, rel=0.1)
    assert expected < 1


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("qsgd", {"norm": "l2", "bucket": 0}),
        ("top_k", {"count": 100}),
        ("random_k", {"count": 20_000, "unbiased": True}),
    ],
)
def test_the_first_gamma_knows_the_models_size_where_the_compressor_depends_on_it(
    name: str, options: dict[str, Any]
) -> None:
    """At 4096 numbers each keeps several times the share that it keeps of 100,000."""
    compressor, dim = COMPRESSORS[name](**options), 100_000
    x, rng = normal(1, dim)[0], np.random.default_rng(8)
    lost = float((compressor.decompress(compressor.compress(x, rng)) - x).square().sum() / x.square().sum())
    assert trial(compressor, dim).kept == pytest.approx(1 - lost, rel=0.3, abs=0.01)
    assert trial(compressor, dim).kept < 0.5 * trial(compressor, 4096).kept + 0.25
    assert sample_size(COMPRESSORS["qsgd"](), 10**7) == sample_size(COMPRESSORS["top_k"](), 10**7) == 4096


@pytest.mark.soak
@pytest.mark.parametrize(("scheme", "rounds"), [("edge", 100), ("push_sum", 200)])
def test_an_automatic_gamma_of_push_sum_backs_off_where_z_runs_away(scheme: str, rounds: int) -> None:
    mixing = mixings("top_k", fraction=0.05)[scheme]
    fleet = Fleet(mixing, net("random_push", 9, out_neighbors=3, redraw_every=0), normal(9, 200))
    given = Fleet(replace(mixing, gamma=1.0), fleet.network, fleet.start).play(rounds)
    fleet.states = [state._replace(step=StepSize(1.0)) for state in fleet.states]
    fleet.play(rounds)
    assert all(state.step.gamma < 1.0 for state in fleet.states)
    torch.testing.assert_close(fleet.total, fleet.start.sum(0), rtol=0, atol=1e-8)
    assert given.error() > 1e3 * fleet.error()


@pytest.mark.parametrize("bare", [False, True])
def test_the_forms_that_do_not_agree_do_not(bare: bool) -> None:
    compressor = COMPRESSORS["qsgd"](bits=4)
    mixing = BareModel(compressor=compressor) if bare else LiteralQuantized(compressor=compressor)
    fleet = Fleet(mixing, net("ring", 8), normal(8, 64)).play(60)
    assert fleet.error() > 0.02
    if not bare:
        torch.testing.assert_close(torch.stack(fleet.x), fleet.start, rtol=0, atol=0)


def test_the_literal_form_moves_the_mean_as_it_should() -> None:
    """X + W (Z - X) with C = I."""
    network, start = net("ring", 6), normal(6, 5)
    mixing, view = LiteralQuantized(compressor=COMPRESSORS["identity"]()), net("ring", 6).view
    trained = start + normal(6, 5) ** 2
    expected = start + torch.from_numpy(network.matrix(0)) @ (trained - start)
    sent = [
        mixing.outgoing(mixing.init(start[i], view(i, 0)), Update(start[i], trained[i]), 0, view(i, 0))
        for i in range(6)
    ]
    for i in range(6):
        inbox = Inbox([Message(j, i, Kind.DATA, 0, 0, 0, 0, box[i]) for j, (_, box) in enumerate(sent) if i in box])
        mixed = mixing.mix(sent[i][0], Update(start[i], trained[i]), inbox, 0, view(i, 0))
        torch.testing.assert_close(mixed.update.x, expected[i], rtol=0, atol=1e-14)


@pytest.mark.parametrize("common_start", [False, True])
def test_identity_is_the_parent_bit_for_bit(common_start: bool) -> None:
    start, ring, varying = normal(8, 30, torch.float32), net("ring", 8), net("random_sym", 8)
    lossless = differences("identity", common_start=common_start)
    for network, mixing in (
        (ring, Choco(differences=lossless)),
        (varying, DeepSqueeze(compressor=lossless.compressor)),
    ):
        got, expected = (Fleet(m, network, start).play(10) for m in (mixing, Gossip()))
        assert torch.equal(torch.stack(got.x), torch.stack(expected.x))
    several = Fleet(Choco(differences=lossless, steps=4), ring, start).play(5)
    assert torch.equal(torch.stack(several.x), torch.stack(Fleet(Gossip(steps=4), ring, start).play(5).x))


def test_identity_push_sum_is_push_sum() -> None:
    start, network = normal(8, 30), net("random_push", 8, out_neighbors=3)
    plain = Fleet(PushSum(), network, start).play(10)
    for mixing in (
        EdgePushSum(differences=differences("identity", mass=True)),
        QuantizedPushSum(differences=differences("identity", mass=True)),
    ):
        fleet = Fleet(mixing, network, start).play(10)
        torch.testing.assert_close(torch.stack(fleet.x), torch.stack(plain.x), rtol=0, atol=1e-13)
        torch.testing.assert_close(fleet.weights, plain.weights, rtol=0, atol=1e-13)


def test_both_ends_of_every_reference_agree_bit_for_bit() -> None:
    start = normal(8, 30, torch.float32)
    choco = Fleet(Choco(differences=differences("chain")), net("grid", 8), start).play(7)
    for i, state in enumerate(choco.states):
        for j, copy in state.heard.copies.items():
            assert torch.equal(copy.vector, choco.states[j].own.vector), (i, j)
    edge = Fleet(EdgePushSum(differences=differences("qsgd", mass=True)), net("random_push", 8, out_neighbors=3), start)
    edge.play(7)
    for i, state in enumerate(edge.states):
        for j, copy in state.heard.copies.items():
            assert torch.equal(copy.vector, edge.states[j].sent[i].vector), (i, j)


def compressed(name: str, scheme: str, compressor: str = "qsgd", **options: Any) -> Entry:
    """A catalog entry that compresses."""
    entry = ALGORITHMS[name]

    def build(exchange: Exchange, /) -> Any:
        changed = replace(exchange, compressor=COMPRESSORS[compressor](**options), scheme=scheme)  # type: ignore[arg-type]
        return entry.build(changed)

    return replace(entry, build=build)


CONTRACT = [
    ("deepsqueeze", "deepsqueeze"),
    ("dfedavg", "deepsqueeze"),
    ("osgp", "edge"),
    ("fedavg", "plain"),
    ("fedavg", "ef14"),
    ("fedavg", "ef21"),
    ("scaffold", "ef21"),
]
SAMPLED = ("deepsqueeze", "deepsqueeze"), ("osgp", "edge"), ("scaffold", "ef21")


@pytest.mark.parametrize(
    "check", ["preserves_the_mean", "converges_on_a_quadratic", "survives_save_and_load", "same_seed_same_result"]
)
@pytest.mark.parametrize(
    ("name", "scheme"), [pytest.param(*row, marks=[] if row in SAMPLED else [pytest.mark.soak]) for row in CONTRACT]
)
def test_compressed_methods_keep_the_contract(name: str, scheme: str, check: str) -> None:
    CHECKS[check](compressed(name, scheme))


@pytest.mark.parametrize(
    ("name", "compressor"),
    [
        ("choco_sgd", "qsgd"),
        ("choco_sgd", "top_k"),
        pytest.param("delicoco", "top_k", marks=pytest.mark.soak),
        ("qdfedavgm", "qsgd"),
        ("dfedavg", "qsgd"),
        pytest.param("dfedsam_mgs", "qsgd", marks=pytest.mark.soak),
    ],
)
def test_choco_methods_converge_on_a_quadratic(name: str, compressor: str) -> None:
    streams, network = Streams(4), net("grid", 6)
    tasks = {i: quadratic(i, streams, dim=20) for i in range(6)}
    options = {"fraction": 0.5} if compressor == "top_k" else {"bits": 6}
    alg = compressed(name, "choco", compressor, **options).build(Exchange(gamma=0.3))
    states = play_rounds(alg, first_states(alg, tasks, network.view), tasks, network.view, 60)
    mean = torch.stack([state.x for state in states.values()]).mean(0)
    best = torch.stack([task.center for task in tasks.values()]).mean(0)
    assert float((mean - best).norm()) < 0.01 * float(best.norm())


def test_ef21_without_compression_is_gradient_descent() -> None:
    """One local step, every client, C = I: w+ = w - lr mean_i grad f_i(w)."""
    ours, theirs = gradient_descent_and_ef21()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_ef21_reaches_the_optimum_where_plain_top_k_does_not() -> None:
    """The other two have settled where they stay after 60 rounds."""
    rounds = {"plain": 60, "ef14": 60, "ef21": 170}
    plain, ef14, ef21 = (server_gap(scheme, num_rounds=num_rounds) for scheme, num_rounds in rounds.items())
    assert ef21 < 1e-8
    assert ef21 < 1e-3 * plain
    assert ef14 < plain


def test_ef21_reaches_the_optimum_when_half_of_the_clients_take_part() -> None:
    """EF21-PP: whoever does not report still counts with what it said last."""
    assert server_gap("ef21", participation=0.5) < 1e-12
    assert server_gap("plain", participation=0.5, num_rounds=60) > 0.1
