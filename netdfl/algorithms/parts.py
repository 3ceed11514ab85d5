"""The parts that the catalog's functions combine. Importing this module imports torch; the catalog does not."""

from __future__ import annotations

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.compressed_parts import choco, deepsqueeze, literal, reports
from netdfl.algorithms.exchange import Exchange, Weighting
from netdfl.algorithms.plain_parts import (
    FixedPoint,
    Gossip,
    GossipThenStep,
    KeptMomentum,
    LocalSgd,
    OverlappedPushSum,
    Pairwise,
    PlainStart,
    PushSum,
    RunningSums,
    directed,
    gossip,
    keeping_momentum,
    local_sgd,
    push_sum,
    undirected,
)
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import Aggregation, Refinement
from netdfl.mixing.by_loss import ByLoss
from netdfl.mixing.compressed.server import InnerRefinement
from netdfl.mixing.confirming import ConfirmingAggregation
from netdfl.mixing.control import ControlAveraging, MomentumAveraging
from netdfl.mixing.dynamic import DynamicAveraging, SmooAveraging
from netdfl.mixing.masked import MaskedAverage
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.mixing.synthetic import SharedSynthesis, TunedSynthesis
from netdfl.training.base import LocalSolver
from netdfl.training.control import FedCmSolver, FedDynSolver, ScaffoldSolver
from netdfl.training.distill import Distiller, Tuning
from netdfl.training.guided import FedSynSamSolver
from netdfl.training.masked import MaskedSgd
from netdfl.training.momentum import QuasiGlobal
from netdfl.training.ole import Ole
from netdfl.training.optimized import OptimizedSgd
from netdfl.training.perturbation import Lesam, Smoo
from netdfl.training.rollback import Rollback, SampleCounter


def averaged(exchange: Exchange, local: LocalSolver, server_lr: float, weighting: Weighting) -> Algorithm:
    """Return an algorithm whose server averages models, uniformly or by the clients' numbers of examples."""
    by_samples = weighting == "samples"
    if by_samples and exchange.compressor is not None and exchange.scheme == "ef21":
        what = "ef21 averages what all clients have said, and knows the examples only of those that report"
        raise ValueError(f"{what}; use weighting: uniform, or scheme: plain or ef14")
    averaging = Averaging(server_lr=server_lr, by_samples=by_samples)
    return server(exchange, SampleCounter(local) if by_samples else local, averaging)


def controlled(server_lr: float) -> Aggregation:
    """Return SCAFFOLD's aggregation, which undoes changes of the control variate whose reports were lost."""
    return ConfirmingAggregation(inner=ControlAveraging(inner=Averaging(server_lr=server_lr)))


def server(
    exchange: Exchange, local: LocalSolver, mixing: Aggregation, *, refine: Refinement | None = None
) -> Algorithm:
    """Return an algorithm with a server; `refine` is the server's additional work on its model."""
    sent = reports(exchange, mixing)
    if refine is not None and sent is not mixing:
        refine = InnerRefinement(refine)
    return Algorithm(family="server", start=PlainStart(), local=local, mixing=sent, wait=exchange.wait, refine=refine)
