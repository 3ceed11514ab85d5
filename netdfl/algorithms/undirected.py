"""Methods by gossip on two-way links, one function each: the paper's parts with the paper's defaults.

A function's keyword parameters are what a scenario may write under `algorithm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.parameters import Decay, Interpolation, Momentum, Radius
from netdfl.core.lazy import lazy_module
from netdfl.core.units import NonNegativeFloat, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from netdfl.algorithms import parts
else:
    parts = lazy_module("netdfl.algorithms.parts")


def dpsgd(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 1,
    local_steps: PositiveInt | None = None,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """D-PSGD as the papers run it: one local epoch of SGD, then gossip, X+ = W Z.

    Sends d numbers to each neighbor, keeps nothing. Source: Lian et al. 2017, with the order and the
    epoch of DFedSAM's experiments; `lian_dpsgd` has the original order.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.gossip(exchange, local)


def lian_dpsgd(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 1,
    local_steps: PositiveInt | None = None,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """D-PSGD as first written: X+ = W X - lr grad F(X), one step, the gradient taken before mixing.

    Sends d numbers to each neighbor, keeps nothing. Source: Lian et al. 2017.

    Raises:
        ValueError: Messages are to be compressed; `choco_sgd` is the method for that.
    """
    if exchange.compressor is not None:
        raise ValueError("lian_dpsgd averages whole models; its compressed counterpart is choco_sgd")
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.gossip(exchange, local, mixing=parts.GossipThenStep(on_missing=exchange.on_missing))


def dfedavg(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """DFedAvg: several local epochs of SGD, then gossip, X+ = W Z.

    Sends d numbers to each neighbor, keeps nothing. Source: Sun, Li, Wang 2022.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.gossip(exchange, local)


def dfedavgm(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    momentum: Momentum = 0.9,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """DFedAvgM: DFedAvg with heavy-ball momentum, started anew every round.

    Sends d numbers to each neighbor, keeps nothing. Source: Sun, Li, Wang 2022.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        momentum=momentum,
    )
    return parts.gossip(exchange, local)


def dfedsam(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    rho: Radius = 0.01,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """DFedSAM: DFedAvg with SAM's gradient, taken `rho` uphill on the same minibatch.

    y~ = y + rho g / |g|, y <- y - lr g(y~), then X+ = W Z. Sends d numbers to each neighbor, keeps
    nothing. Source: DFedSAM Alg. 1.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        rho=rho,
    )
    return parts.gossip(exchange, local)


def dfedsam_mgs(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    rho: Radius = 0.01,
    gossip_steps: PositiveInt = 4,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """DFedSAM-MGS: DFedSAM with several gossip steps a round, X+ = W^Q Z.

    Sends Q d numbers to each neighbor, keeps nothing. Source: DFedSAM Alg. 1; Q = 4 in its experiments.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        rho=rho,
    )
    mixing = parts.MultiGossip(parts.undirected(exchange), gossip_steps)
    return parts.gossip(exchange, local, mixing=mixing)


def oledfl_sgd(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    beta: Interpolation = 0.8,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """OledFL-SGD: DFedAvg begun past the mixed vector, y_0 = x + beta (x - z_prev).

    Then local SGD and X+ = W Z. Sends d numbers to each neighbor, keeps z, where its last local round
    ended. On a static W, beta has a limit: see `netdfl.training.ole`. Source: OledFL Alg. 1; beta 0.99
    for CIFAR-10, 0.8 for CIFAR-100.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.gossip(exchange, local, start=parts.Ole(beta))


def oledfl_sam(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    beta: Interpolation = 0.8,
    rho: Radius = 0.1,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """OledFL-SAM: OledFL with SAM's gradient, taken `rho` uphill on the same minibatch.

    y_0 = x + beta (x - z_prev), local SAM, X+ = W Z. Sends d numbers to each neighbor, keeps z, where
    its last local round ended. Source: OledFL Alg. 1; beta as for `oledfl_sgd`.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        rho=rho,
    )
    return parts.gossip(exchange, local, start=parts.Ole(beta))


def qg_dsgdm(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = 1,
    momentum: Momentum = 0.9,
    mu: Momentum = 0.9,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """QG-DSGDm: momentum that begins from how the node's vector moved, mixing included.

    v_0 = m^, v <- momentum v + g, y <- y - lr v, X+ = W Z, then
    m^ <- mu m^ + (1 - mu) (x - x+) / (lr K). Sends d numbers to each neighbor, keeps m^.
    Source: Lin et al. 2021, where K = 1 and mu = momentum.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        momentum=momentum,
    )
    return parts.gossip(exchange, parts.QuasiGlobal(local, mu))
