"""FedSynSAM and DynaFed: when the examples are made, who gets them, and what they do there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from algorithm_fleets import DIM, EXCHANGE, SMALL, N, network, quadratics
from method_scenarios import scenario
from torch import Tensor

import netdfl
from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.errors import MalformedMessage
from netdfl.core.types import Array, Inbox, Kind, Message, Payload
from netdfl.mixing.payloads import pack
from netdfl.mixing.synthetic import SharedSynthesis
from netdfl.record.judge import WELL
from netdfl.testing.loopback import run_fleet
from netdfl.training.guided import INPUTS, LABELS

WARMUP = 2
PATIENT = WaitPolicy(deadline_ns=50_000_000)


def method(name: str, exchange: Exchange = EXCHANGE, **params: Any) -> Algorithm:
    return ALGORITHMS[name].build(exchange, lr=0.1, local_steps=2, **(SMALL[name] | params))


class Log:
    """Every message of a run, as (round, step, src, dst, whether D_syn was in it); some are lost."""

    def __init__(self, lost: set[tuple[int, int]] = frozenset()) -> None:  # type: ignore[assignment]
        self.seen: list[tuple[int, int, int, int, bool]] = []
        self.lost = lost

    def __call__(self, message: Message) -> bool:
        carries = INPUTS in message.payload.arrays
        self.seen.append((message.round, message.step, message.src, message.dst, carries))
        return (message.round, message.dst) in self.lost and message.step == 0

    def given(self) -> dict[int, list[int]]:
        """The rounds in which D_syn was on the way to each client."""
        return {i: [r for r, _, _, dst, carries in self.seen if carries and dst == i] for i in range(N)}


@pytest.mark.parametrize("exchange", [EXCHANGE, Exchange(compressor=IdentityCompressor())], ids=["as_is", "compressed"])
def test_every_client_gets_the_examples_once_at_its_first_chance(exchange: Exchange) -> None:
    net, log = network("star", participation=0.5), Log()
    kept = run_fleet(method("fedsynsam", exchange), net.view, quadratics(N + 1), 10, lost=log)
    for i, rounds in log.given().items():
        taking_part = [r for r in range(WARMUP, 10) if i in net.view(N, r).out_neighbors]
        assert rounds == taking_part[:1]
        if taking_part:
            assert kept[i].states[-1].local.synthetic[INPUTS].shape == (2, DIM)


def test_who_did_not_get_them_gets_them_again() -> None:
    log = Log(lost={(WARMUP, 1), (WARMUP + 1, 1), (WARMUP, 3)})
    run_fleet(method("fedsynsam", Exchange(wait=PATIENT)), network("star").view, quadratics(N + 1), 6, lost=log)
    assert log.given() == {0: [2], 1: [2, 3, 4], 2: [2], 3: [2, 3], 4: [2], 5: [2]}


def test_the_ascent_is_part_the_examples_gradient() -> None:
    """Both gradients of quadratics are known, so the step is, too."""
    beta, rho, lr, tasks = 0.4, 0.3, 0.1, quadratics(N + 1, noise=0.0)
    alg = method("fedsynsam", beta=beta, rho=rho, synthetic_batch=99)
    kept = run_fleet(alg, network("star").view, tasks, 3, lost=lambda message: False)
    w = kept[N].states[WARMUP - 1].x
    center = kept[0].states[-1].local.synthetic[INPUTS].mean(0)
    models = []
    for i in range(N):
        y, h = w, tasks[i].curvature
        for _ in range(2):
            ascent = beta * h * (y - tasks[i].center) + (1 - beta) * h * (y - center)
            y = y - lr * h * (y + rho * ascent / ascent.norm() - tasks[i].center)
        models.append(y)
    torch.testing.assert_close(kept[N].states[-1].x, torch.stack(models).mean(0), rtol=0, atol=1e-11)


def test_the_server_keeps_its_models_until_it_has_distilled_them() -> None:
    kept = run_fleet(method("fedsynsam", warmup_rounds=3), network("star").view, quadratics(N + 1), 5)
    states = [state.mixing for state in kept[N].states]
    assert [len(state.trajectory) for state in states] == [2, 3, 0, 0, 0]
    assert [bool(state.synthetic) for state in states] == [False, False, True, True, True]
    assert torch.equal(states[1].trajectory[1], kept[N].states[0].x)


def test_synthetic_only_means_that_nobody_sends_any_more() -> None:
    log = Log()
    kept = run_fleet(method("dynafed_synonly"), network("star").view, quadratics(N + 1), 6, lost=log)
    assert {round for round, *_ in log.seen} == {0, 1}
    assert not any(carries for *_, carries in log.seen)
    models = [state.x for state in kept[N].states]
    assert not torch.equal(models[2], models[3])


def test_dynafed_trains_each_average_on_the_examples() -> None:
    """With no steps of tuning it would be FedAvg; with many it forgets the clients."""

    def model(**params: Any) -> Tensor:
        kept = run_fleet(method("dynafed", **params), network("star").view, quadratics(N + 1, noise=0.0), 5)
        mixing = kept[N].states[-1].mixing
        return kept[N].states[-1].x - (mixing.synthetic[INPUTS].mean(0) if mixing.synthetic else 0)

    assert float(model(tuning_steps=400).norm()) < 0.05 < float(model(tuning_steps=1).norm())


def test_dynafed_augments_by_default_and_its_like_in_the_tables_does_not(
    tmp_path: Path,
) -> None:
    """On digits, from the end of the warm-up on: before it, nothing differs."""

    def hash_of(name: str, rounds: int, **changed: Any) -> str:
        written = scenario(name, nodes=4, rounds=rounds)
        written["algorithm"] = {k: v for k, v in written["algorithm"].items() if k != "augment"} | changed
        file = tmp_path / "s.yaml"
        file.write_text(json.dumps(written))
        result = netdfl.run(netdfl.load(file), out=tmp_path / f"{len(list(tmp_path.iterdir()))}", page=False).result
        assert result["verdict"] in WELL, result["reasons"]
        return str(result["event_log_hash"])

    every, later = ("color", "crop", "cutout", "flip", "scale", "rotate"), WARMUP + 1
    plain = ALGORITHMS["dynafed"].build
    assert plain(EXCHANGE).mixing == plain(EXCHANGE, augment=every).mixing != plain(EXCHANGE, augment=()).mixing
    assert hash_of("dynafed", later) != hash_of("dynafed", later, augment=[])
    assert hash_of("dynafed", WARMUP) == hash_of("dynafed", WARMUP, augment=[])
    assert hash_of("dynafed_synonly", later) == hash_of("dynafed_synonly", later, augment=[])


def test_warming_up_for_less_than_a_segment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"warmup_rounds = 2 .* 3 rounds apart; expected warmup_rounds of 3"):
        method("fedsynsam", warmup_rounds=2, distil_steps=3)


def test_half_a_set_of_examples_is_malformed() -> None:
    x = torch.zeros(DIM, dtype=torch.float64)
    sent = pack(x)
    extra = Array("float64", (2, DIM), memoryview(bytes(16 * DIM)))
    message = Message(N, 0, Kind.DATA, 0, 2, 0, 0, Payload({**sent.arrays, INPUTS: extra}))
    mixing = method("fedsynsam").mixing
    assert isinstance(mixing, SharedSynthesis)
    with pytest.raises(MalformedMessage, match="as many synthetic labels as inputs"):
        mixing.adopt(Inbox([message]), x, network("star").view(0, 2))
    assert LABELS not in message.payload.arrays
