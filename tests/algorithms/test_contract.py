"""Every algorithm of the catalog keeps the contract, and the contract notices one that does not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
from algorithm_fleets import SMALL

from netdfl.algorithms.base import Algorithm, Entry
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.identity import IdentityCompressor
from netdfl.core.types import Inbox, View
from netdfl.mixing.base import MixResult
from netdfl.mixing.gossip import Gossip, GossipState
from netdfl.testing.contract import CHECKS, check_algorithm
from netdfl.training.base import Update

TO_THE_END = ("agrees_without_gradient", "converges_on_a_quadratic")
THOROUGH = {"warmup_rounds": 12, "distil_iterations": 100, "input_lr": 0.1, "rate_lr": 0.002}
"""DynaFed's model goes where its examples are, so for the checks of where it ends they must be good."""


def bound(name: str, check: str) -> Entry:
    """The entry as it is, with what is costly made short."""
    entry, params = ALGORITHMS[name], SMALL.get(name, {})
    if name.startswith("dynafed") and check in TO_THE_END:
        params = params | THOROUGH
    return replace(entry, build=partial(entry.build, **params))


def marks(name: str, check: str) -> list[pytest.MarkDecorator]:
    """The soak's for an agreement by a mixing that another method has, and for the ends of a second DynaFed."""
    if check == "agrees_without_gradient" and name not in MIXINGS.values():
        return [pytest.mark.soak]
    return [pytest.mark.soak] if name == "dynafed_synonly" and check in TO_THE_END else []


MIXINGS = {repr(entry.build(Exchange()).mixing): name for name, entry in reversed(ALGORITHMS.items())}
"""By mixing, the first method that has it."""


@pytest.mark.parametrize(
    ("name", "check"), [pytest.param(*row, marks=marks(*row)) for row in product(ALGORITHMS, CHECKS)]
)
def test_catalog_keeps_the_contract(name: str, check: str) -> None:
    CHECKS[check](bound(name, check))


READINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "dpsgd_nesterov": ("dpsgd", {"momentum": 0.5, "nesterov": True}),
    "sgp_momentum": ("sgp", {"momentum": 0.5}),
    "slowmo_outer_step": ("slowmo", {"momentum": 0.5, "every": 3}),
    "fedavg_samples": ("fedavg", {"weighting": "samples"}),
    "fedsmoo_paper": ("fedsmoo", {"form": "paper"}),
    "dispfl_mix_first": ("dispfl", {"order": "mix_first"}),
}
NOT_HELD = {("dispfl_mix_first", "preserves_the_mean"), ("dispfl_mix_first", "mixes_as_the_matrix")}
"""Where a round mixes before it trains, its models are those of training."""


@pytest.mark.parametrize(("reading", "check"), [(r, c) for r in READINGS for c in CHECKS if (r, c) not in NOT_HELD])
def test_other_readings_keep_it_too(reading: str, check: str) -> None:
    name, params = READINGS[reading]
    entry = ALGORITHMS[name]
    CHECKS[check](replace(entry, build=partial(entry.build, **(SMALL.get(name, {}) | params))))


def test_which_methods_refuse_compression() -> None:
    """For all others the identity was tried."""
    refuse = set()
    for name, entry in ALGORITHMS.items():
        try:
            entry.build(Exchange(compressor=IdentityCompressor()))
        except ValueError:
            refuse.add(name)
    assert refuse == {"lian_dpsgd", "overlap_sgp", "asyng", "dispfl", "slowmo", "ad_psgd"}


class Leaky(Gossip):
    """Loses a little of the mean."""

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        mixed = super().mix(state, update, inbox, step, view)
        return mixed._replace(update=mixed.update._replace(x=mixed.update.x * (1 - 1e-9)))


class Overwriting(Gossip):
    """Mixes into the vector that a start may have kept."""

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        mixed = super().mix(state, update, inbox, step, view)
        return mixed._replace(update=update._replace(x=update.x.copy_(mixed.update.x)))


class Deaf(Gossip):
    """Never mixes."""

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        return MixResult(state, update)


class Even(Gossip):
    """Gives each neighbor the same weight, whatever the matrix says."""

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        weight = 1 / (1 + len(view.in_neighbors or ()))
        even = view._replace(self_weight=weight, in_weights=dict.fromkeys(view.in_neighbors or (), weight))
        return super().mix(state, update, inbox, step, even)


class Forgetful(Gossip):
    """Mixes as what lies in no saved state says."""

    def __init__(self) -> None:
        object.__setattr__(self, "calls", [])
        super().__init__()

    def mix(self, state: GossipState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        self.calls.append(step)  # type: ignore[attr-defined]
        mixed = super().mix(state, update, inbox, step, view)
        return mixed._replace(update=mixed.update._replace(x=mixed.update.x + len(self.calls)))  # type: ignore[attr-defined]


def with_mixing(mixing: Any, **params: Any) -> Entry:
    def build(exchange: Exchange, /) -> Algorithm:
        return replace(ALGORITHMS["dfedavg"].build(exchange, **params), mixing=mixing)

    return replace(ALGORITHMS["dfedavg"], build=build)


def halved_if_compressed(exchange: Exchange, /) -> Algorithm:
    """Moves by half of the difference where it compresses."""
    return ALGORITHMS["dfedavg"].build(replace(exchange, gamma=0.5))


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (with_mixing(Leaky()), "preserves_the_mean"),
        (with_mixing(Leaky()), "mixes_as_the_matrix"),
        (with_mixing(Overwriting()), "mixes_as_the_matrix"),
        (with_mixing(Overwriting()), "leaves_the_start_alone"),
        (with_mixing(Even()), "preserves_the_mean"),
        (with_mixing(Even()), "mixes_as_the_matrix"),
        (with_mixing(Deaf()), "agrees_without_gradient"),
        (with_mixing(Forgetful()), "same_seed_same_result"),
        (with_mixing(Forgetful()), "survives_save_and_load"),
        (with_mixing(Gossip(), lr=3.0), "converges_on_a_quadratic"),
        (replace(ALGORITHMS["dfedavg"], build=halved_if_compressed), "identity_changes_nothing"),
    ],
)
def test_the_contract_notices_an_algorithm_that_breaks_it(broken: Entry, check: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[check](broken)


def test_an_own_algorithm_is_checked_in_one_call() -> None:
    check_algorithm(with_mixing(Gossip(on_missing="renormalise")))


class Stranger(Gossip):
    """Sends to a node that is no neighbor, too."""

    def outgoing(self, state: GossipState, update: Update, step: int, view: View) -> Any:
        state, outbox = super().outgoing(state, update, step, view)
        others = set(range(view.num_nodes)) - {view.node, *view.out_neighbors}
        return state, {**outbox, **dict.fromkeys(sorted(others)[:1], next(iter(outbox.values())))}


@pytest.mark.parametrize("check", ["mixes_as_the_matrix", "same_seed_same_result"])
def test_a_message_along_no_edge_is_told_by_the_contract_too(check: str) -> None:
    with pytest.raises(AssertionError, match=f"{check}: the mixing Stranger sends to . from node"):
        CHECKS[check](with_mixing(Stranger()))
