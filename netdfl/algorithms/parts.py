"""The parts that the catalog's functions put together. Importing it imports torch; the catalog does not."""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.compressed_parts import choco, deepsqueeze, directed, literal, reports, undirected
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.parameters import AnySgd, Sgd, Weighting
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import Aggregation, Mixing, Refinement
from netdfl.mixing.by_loss import ByLoss
from netdfl.mixing.confirming import Confirming
from netdfl.mixing.control import ControlAveraging, MomentumAveraging
from netdfl.mixing.dynamic import DynamicAveraging, SmooAveraging
from netdfl.mixing.gossip import Gossip, GossipThenStep, MultiGossip
from netdfl.mixing.masked import MaskedAverage
from netdfl.mixing.overlap import Overlapped
from netdfl.mixing.pairwise import Pairwise
from netdfl.mixing.push_sum import PushSum
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.mixing.synthetic import Beneath, SharedSynthesis, TunedSynthesis
from netdfl.training.base import LocalSolver, RoundStart
from netdfl.training.control import Blended, Controlled
from netdfl.training.counted import Counted
from netdfl.training.distill import Distiller, Tuning
from netdfl.training.dynamic import Dynamic
from netdfl.training.fixed_point import FixedPoint
from netdfl.training.guided import Guided
from netdfl.training.kept_momentum import KeptMomentum
from netdfl.training.lesam import Lesam
from netdfl.training.masked import Masked
from netdfl.training.ole import Ole
from netdfl.training.optimized import OptimizedSgd
from netdfl.training.quasi_global import QuasiGlobal
from netdfl.training.rollback import Rollback
from netdfl.training.sgd import LocalSgd, PlainStart
from netdfl.training.smoo import Smoo


def local_sgd(sgd: Sgd, *, momentum: float = 0.0, nesterov: bool = False, rho: float = 0.0) -> LocalSgd:
    """Local SGD as the catalog's parameters describe it, or another optimizer where they name one.

    Raises ValueError where both that and momentum are asked for.
    """
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
    return OptimizedSgd(**vars(plain), optimizer=other, decay=sgd.weight_decay) if other else plain


def keeping_momentum(local: LocalSgd, restart_every: int | None = None) -> LocalSolver:
    """`local` with a buffer that outlives its rounds, where it has momentum at all."""
    return KeptMomentum(local, restart_every) if local.momentum else local


def averaged(exchange: Exchange, local: LocalSolver, server_lr: float, weighting: Weighting) -> Algorithm:
    """An algorithm whose server averages models and does nothing else, uniformly or by the clients' examples.

    Raises ValueError where that can't be done by examples.
    """
    by_samples = weighting == "samples"
    if by_samples and exchange.compressor is not None and exchange.scheme == "ef21":
        what = "ef21 averages what all clients have said, and knows the examples only of those that report"
        raise ValueError(f"{what}; use weighting: uniform, or scheme: plain or ef14")
    averaging = Averaging(server_lr=server_lr, by_samples=by_samples)
    return server(exchange, Counted(local) if by_samples else local, averaging)


def controlled(server_lr: float) -> Aggregation:
    """SCAFFOLD's exchange: averaging with a control variate beside the model, whose lost changes are taken back."""
    return Confirming(inner=ControlAveraging(inner=Averaging(server_lr=server_lr)))


def gossip(
    exchange: Exchange, local: LocalSolver, *, mixing: Mixing | None = None, start: RoundStart | None = None
) -> Algorithm:
    """An algorithm of the gossip family; without another `mixing` it is gossip on undirected graphs."""
    mixing = mixing or undirected(exchange)
    return Algorithm(family="gossip", start=start or PlainStart(), local=local, mixing=mixing, wait=exchange.wait)


def push_sum(exchange: Exchange, local: LocalSolver) -> Algorithm:
    """An algorithm of the gossip family on directed graphs, by push-sum."""
    return gossip(exchange, local, mixing=directed(exchange))


def server(
    exchange: Exchange, local: LocalSolver, mixing: Aggregation, *, refine: Refinement | None = None
) -> Algorithm:
    """An algorithm with a server; `refine` works on the state of `mixing`."""
    sent = reports(exchange, mixing)
    if refine is not None and sent is not mixing:
        refine = Beneath(refine)
    return Algorithm(family="server", start=PlainStart(), local=local, mixing=sent, wait=exchange.wait, refine=refine)
