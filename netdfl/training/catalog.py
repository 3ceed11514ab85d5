"""The built-in toy tasks by name: functions from a node and the random streams to its task.

Each imports torch only when it is called, so that the table, and a scenario's schema with it, does not need torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import numpy as np
from annotated_types import MinLen
from numpy.typing import NDArray

from netdfl.core.rng import Streams
from netdfl.core.tables import by_name
from netdfl.core.types import NodeId
from netdfl.core.units import Bound, NonNegativeFloat, PositiveFloat, Quantity, parse_size_bytes

if TYPE_CHECKING:
    from netdfl.training.toy import Quadratic

Dtype = Literal["float32", "float64"]
OneEach: TypeAlias = Annotated[tuple[PositiveFloat, ...], MinLen(1)]
Size = Annotated[int, Bound(ge=32, le=10**13), Quantity("size", parse_size_bytes)]
Dim = Annotated[int, Bound(ge=1, le=100_000_000)]


def consensus(
    node: NodeId,
    streams: Streams,
    /,
    *,
    dim: Dim = 16,
    init: Literal["normal", "integers", "ramp"] = "normal",
    dtype: Dtype = "float64",
) -> Quadratic:
    """Agree on the mean of the starting vectors, without a gradient, to observe only the mixing.

    `normal` draws N(0, 1), `integers` draws whole numbers from 0 to 1023, `ramp` is node + coordinate.
    """
    import torch

    from netdfl.training.toy import still

    return still(torch.from_numpy(_starts(node, streams, dim, init, dtype)), node, streams)


def _starts(node: NodeId, streams: Streams, dim: int, init: str, dtype: str) -> NDArray[Any]:
    rng = streams.rng("consensus", node)
    if init == "normal":
        return rng.standard_normal(dim).astype(dtype)
    return rng.integers(0, 1024, dim).astype(dtype) if init == "integers" else np.arange(dim, dtype=dtype) + node


def without_torch(
    node: NodeId, streams: Streams, /, *, dim: int = 4, init: str = "normal", dtype: str = "float64", **sized: object
) -> Quadratic:
    """Return the `consensus` or `sized` task on a `Vector`, a numpy array that replaces a tensor and needs no torch."""
    from netdfl.compression.vector import vector
    from netdfl.training.toy import still

    return still(vector(_starts(node, streams, dim, init, dtype)), node, streams)


def quadratic(
    node: NodeId,
    streams: Streams,
    /,
    *,
    dim: Dim = 16,
    heterogeneity: float = 1.0,
    condition: float = 1.0,
    curvature: PositiveFloat | OneEach = 1.0,
    noise: NonNegativeFloat = 0.0,
    dtype: Dtype = "float64",
) -> Quadratic:
    """Minimize the mean of quadratics whose centers differ by `heterogeneity` from node to node.

    f_i(x) = 1/2 sum_k h_ik (x_k - c_ik)^2. A node's curvatures h_ik run from a / `condition` to a over the coordinates
    k, with a = `curvature`; a list gives each node its own a, and begins again where it is too short. Where they
    differ, clients that make several steps drift: the optimum is sum h_i c_i / sum h_i, not the mean of the c_i.
    """
    import torch

    from netdfl.training.toy import Quadratic

    kind = getattr(torch, dtype)
    center = torch.from_numpy(streams.rng("quadratic", node).standard_normal(dim)).to(kind) * heterogeneity
    own = curvature[node % len(curvature)] if isinstance(curvature, tuple) else curvature
    pulls = torch.logspace(-math.log10(condition), 0, dim, dtype=kind) * own
    return Quadratic(center, torch.zeros(dim, dtype=kind), pulls, node=node, streams=streams, noise=noise)


SIZED_NBYTES = 32
"""The true size of the vector of the task `sized` in bytes: four numbers of float64."""


def sized(node: NodeId, streams: Streams, /, *, bytes: Size) -> Quadratic:
    """Measure the cost on a network of a model that is `bytes` large, by `consensus` on four numbers.

    Each vector in a message counts as `bytes` on links, in rates and queues and in the record. Only for the simulated
    world, because other worlds send the message itself, with its true size.
    """
    return consensus(node, streams, dim=4)


TOYS = by_name(consensus, quadratic, sized)
TRAINING_FREE = frozenset({"consensus", "sized"})
"""The toy tasks without training."""
