"""The catalog's parts that need no torch, neither to be imported nor to run; see `netdfl.compression.vector`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import AnySgd, Exchange, Sgd
from netdfl.core.tables import lazy_module
from netdfl.mixing.base import Mixing
from netdfl.mixing.gossip import Gossip, GossipThenStep
from netdfl.mixing.pairwise import Pairwise
from netdfl.mixing.push_sum import OverlappedPushSum, PushSum
from netdfl.mixing.running_sums import RunningSums
from netdfl.training.base import LocalSolver, RoundStart
from netdfl.training.momentum import KeptMomentum
from netdfl.training.sgd import FixedPoint, LocalSgd, PlainStart

if TYPE_CHECKING:
    from netdfl.algorithms import compressed_parts
    from netdfl.training import optimized
else:
    compressed_parts = lazy_module("netdfl.algorithms.compressed_parts")
    optimized = lazy_module("netdfl.training.optimized")

PLAIN = (
    *(Gossip, GossipThenStep, PushSum, RunningSums, OverlappedPushSum, Pairwise),
    *(LocalSgd, KeptMomentum, FixedPoint, PlainStart),
)
"""The classes of parts that work on netdfl's `Vector`, which needs no torch, in the same way as on a tensor."""


def needs_torch(algorithm: Algorithm) -> bool:
    """Return whether any part of the algorithm needs torch."""
    parts = [algorithm.start, algorithm.local, algorithm.mixing, algorithm.refine]
    inner = [getattr(part, name) for part in parts for name in ("inner", "sgd") if hasattr(part, name)]
    return any(part is not None and type(part) not in PLAIN for part in (*parts, *inner))


def local_sgd(sgd: Sgd, *, momentum: float = 0.0, nesterov: bool = False, rho: float = 0.0) -> LocalSgd:
    """Return a solver for local SGD with the given parameters, or with another optimizer if they name one."""
    other = sgd.optimizer if isinstance(sgd, AnySgd) and sgd.optimizer.name != "sgd" else None
    if other and momentum:
        raise ValueError(f"momentum is plain SGD's, and optimizer is {other.name}: leave one of them out")
    plain = LocalSgd(
        lr=sgd.lr,
        lr_decay=sgd.lr_decay,
        epochs=sgd.local_epochs if sgd.local_steps is None else None,
        steps=sgd.local_steps,
        weight_decay=0.0 if other else sgd.weight_decay,
        clip_norm=sgd.clip_norm,
        momentum=momentum,
        nesterov=nesterov,
        rho=rho,
        schedule=sgd.schedule,
    )
    return optimized.OptimizedSgd(**vars(plain), optimizer=other, decay=sgd.weight_decay) if other else plain


def keeping_momentum(local: LocalSgd, restart_every: int | None = None) -> LocalSolver:
    """Return `local` with momentum that continues from round to round, and starts from 0 every `restart_every` rounds.

    Without `restart_every` it never starts again. A `local` that has no momentum is returned as it is.
    """
    return KeptMomentum(local, restart_every) if local.momentum else local


def gossip(
    exchange: Exchange, local: LocalSolver, *, mixing: Mixing | None = None, start: RoundStart | None = None
) -> Algorithm:
    """Return an algorithm of the gossip family; the default `mixing` is gossip on undirected graphs."""
    mixing = mixing or undirected(exchange)
    return Algorithm(family="gossip", start=start or PlainStart(), local=local, mixing=mixing, wait=exchange.wait)


def push_sum(exchange: Exchange, local: LocalSolver) -> Algorithm:
    """Return an algorithm of the gossip family on directed graphs, by push-sum."""
    return gossip(exchange, local, mixing=directed(exchange))


def undirected(exchange: Exchange, steps: int = 1) -> Mixing:
    """Return gossip, compressed by the exchange's scheme. Raises ValueError for a scheme that is not for gossip."""
    if exchange.compressor is not None:
        return compressed_parts.undirected(exchange, steps)
    return Gossip(on_missing=exchange.on_missing, stale=exchange.wait.stale, steps=steps)


def directed(exchange: Exchange) -> Mixing:
    """Return push-sum, compressed by the exchange's scheme. Raises ValueError for a scheme that is not for push-sum."""
    if exchange.compressor is not None:
        return compressed_parts.directed(exchange)
    return RunningSums() if exchange.delivery == "running_sums" else PushSum()
