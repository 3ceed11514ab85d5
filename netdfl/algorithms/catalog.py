"""The algorithms, one function each: the paper's parts with the paper's defaults.

A function's keyword parameters are what a scenario may write under `algorithm`. Importing this file
is cheap: the parts, and torch with them, are imported when an algorithm is built, so that a scenario
is checked in a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from netdfl.algorithms.base import Algorithm, Catalog, Entry
from netdfl.algorithms.exchange import Exchange
from netdfl.core.lazy import lazy_module
from netdfl.core.units import Bound, NonNegativeFloat, PositiveFloat, PositiveInt

if TYPE_CHECKING:
    from netdfl.algorithms import parts
else:
    parts = lazy_module("netdfl.algorithms.parts")

Decay: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Momentum: TypeAlias = Annotated[float, Bound(ge=0, lt=1)]


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
    """
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


def sgp(
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
    """SGP as DFedSGPSM's experiments run it: one local epoch at z = x / w, then push-sum.

    Sends d + 1 numbers to each out-neighbor, keeps w. Source: Assran et al. 2019, DFedSGPSM Table 1.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.push_sum(exchange, local)


def osgp(
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
    """OSGP as DFedSGPSM's experiments run it: several local epochs at z = x / w, then push-sum.

    Sends d + 1 numbers to each out-neighbor, keeps w. The name is that paper's: nothing overlaps here.
    Source: DFedSGPSM Table 1.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.push_sum(exchange, local)


def fedavg(
    exchange: Exchange,
    /,
    *,
    lr: PositiveFloat = 0.1,
    lr_decay: Decay = 1.0,
    local_epochs: PositiveInt = 5,
    local_steps: PositiveInt | None = None,
    server_lr: PositiveFloat = 1.0,
    weight_decay: NonNegativeFloat = 0.0,
    clip_norm: PositiveFloat | None = None,
) -> Algorithm:
    """FedAvg: the server averages what the round's participants made of its model.

    Sends d numbers down and d up, keeps nothing. Source: McMahan et al. 2017; uniform weights.
    """
    local = parts.local_sgd(
        lr=lr,
        lr_decay=lr_decay,
        local_epochs=local_epochs,
        local_steps=local_steps,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
    )
    return parts.server(exchange, local, server_lr=server_lr)


DOUBLY = frozenset({"doubly", "row"})
COLUMN = frozenset({"doubly", "column"})
SERVER = frozenset({"server"})

ALGORITHMS: Catalog = {
    "dpsgd": Entry(build=dpsgd, family="gossip", needs=DOUBLY, source="Lian et al. 2017; DFedSAM"),
    "lian_dpsgd": Entry(build=lian_dpsgd, family="gossip", needs=DOUBLY, source="Lian et al. 2017"),
    "dfedavg": Entry(build=dfedavg, family="gossip", needs=DOUBLY, source="Sun, Li, Wang 2022"),
    "dfedavgm": Entry(build=dfedavgm, family="gossip", needs=DOUBLY, source="Sun, Li, Wang 2022"),
    "sgp": Entry(build=sgp, family="gossip", needs=COLUMN, source="Assran et al. 2019; DFedSGPSM"),
    "osgp": Entry(build=osgp, family="gossip", needs=COLUMN, source="DFedSGPSM"),
    "fedavg": Entry(build=fedavg, family="server", needs=SERVER, source="McMahan et al. 2017"),
}
