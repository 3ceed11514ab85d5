"""The names for writing one's own parts: one import for an algorithm, a graph, a compressor.

    from netdfl.extend import Algorithm, Exchange, gossip, local_sgd

    def mine(exchange: Exchange, /, *, sgd: Sgd = Sgd()) -> Algorithm:
        return gossip(exchange, local_sgd(sgd))

These names are netdfl's promise to code outside of it: the changelog lists every change of one. Names in other modules
may change without notice. `docs/own_algorithm.md` shows how they work together, `docs/extend.md` lists them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm, Entry
from netdfl.algorithms.exchange import (
    AnySgd,
    Exchange,
    Fraction,
    Interpolation,
    Momentum,
    Parameters,
    Radius,
    Sgd,
    WaitPolicy,
)
from netdfl.algorithms.plain_parts import directed, gossip, keeping_momentum, local_sgd, push_sum, undirected
from netdfl.compression.base import Compressor, EncodedVector
from netdfl.core.errors import MalformedMessage
from netdfl.core.rng import Streams
from netdfl.core.types import Array, Inbox, Message, NodeId, Outbox, Payload, Role, View
from netdfl.core.units import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Probability, TimeNs
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.base import Aggregation, AggregationWrapper, Mixing, MixResult, RowMixing, ShareMixing
from netdfl.mixing.gossip import Gossip, GossipThenStep, weighted_mean
from netdfl.mixing.pairwise import Pairwise
from netdfl.mixing.payloads import extra, mass, pack, to_all, vector
from netdfl.mixing.push_sum import PushSum
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.topology.base import Topology, static
from netdfl.topology.graph import Graph
from netdfl.topology.weights import MixingMatrix
from netdfl.training.base import (
    Extras,
    Gradient,
    LocalData,
    LocalSolver,
    MixingIndependent,
    Received,
    RoundStart,
    StepRequests,
    StepSolver,
    Update,
)
from netdfl.training.momentum import KeptMomentum, QuasiGlobal
from netdfl.training.sgd import LocalSgd, Memoryless, NoState, PlainStart, Stateless

if TYPE_CHECKING:
    from netdfl.algorithms.compressed_parts import choco, deepsqueeze
    from netdfl.algorithms.parts import averaged, controlled, server
    from netdfl.compression.arrays import to_array, to_tensor
    from netdfl.training.ole import Ole

_WITH_TORCH = {
    "averaged": "netdfl.algorithms.parts",
    "choco": "netdfl.algorithms.compressed_parts",
    "Ole": "netdfl.training.ole",
    "controlled": "netdfl.algorithms.parts",
    "deepsqueeze": "netdfl.algorithms.compressed_parts",
    "server": "netdfl.algorithms.parts",
    "to_array": "netdfl.compression.arrays",
    "to_tensor": "netdfl.compression.arrays",
}
"""Parts in modules that import torch, which a graph of one's own does not need."""

__all__ = [
    "Aggregation",
    "AggregationWrapper",
    "Algorithm",
    "AnySgd",
    "Array",
    "Averaging",
    "Compressor",
    "EncodedVector",
    "Entry",
    "Exchange",
    "Extras",
    "Fraction",
    "Gossip",
    "GossipThenStep",
    "Gradient",
    "Graph",
    "Inbox",
    "Interpolation",
    "KeptMomentum",
    "LocalData",
    "LocalSgd",
    "LocalSolver",
    "MalformedMessage",
    "Memoryless",
    "Message",
    "MixResult",
    "Mixing",
    "MixingIndependent",
    "MixingMatrix",
    "Momentum",
    "NoState",
    "NodeId",
    "NonNegativeFloat",
    "NonNegativeInt",
    "Ole",
    "Outbox",
    "Pairwise",
    "Parameters",
    "Payload",
    "PlainStart",
    "PositiveFloat",
    "PositiveInt",
    "Probability",
    "PushSum",
    "QuasiGlobal",
    "Radius",
    "Received",
    "Role",
    "RoundStart",
    "RowMixing",
    "Sgd",
    "ShareMixing",
    "SlowMomentum",
    "Stateless",
    "StepRequests",
    "StepSolver",
    "Streams",
    "TimeNs",
    "Topology",
    "Update",
    "View",
    "WaitPolicy",
    "averaged",
    "choco",
    "controlled",
    "deepsqueeze",
    "directed",
    "extra",
    "gossip",
    "keeping_momentum",
    "local_sgd",
    "mass",
    "pack",
    "push_sum",
    "server",
    "static",
    "to_all",
    "to_array",
    "to_tensor",
    "undirected",
    "vector",
    "weighted_mean",
]


def __getattr__(name: str) -> object:
    """Import a name that needs torch at its first use."""
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'netdfl.extend' has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)


def __dir__() -> list[str]:
    """Return the names that need torch too before their first use, for completion by Tab and for `help`."""
    return sorted({*globals(), *__all__})
