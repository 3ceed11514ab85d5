"""Models of the virtual time that local rounds take, by name, and the nodes that are slower than others.

Relies on: a stream for each node and round, so that a draw does not depend on who trained before, and a file of
measured times that is kept with the run.

Why: A local round's real time differs from run to run and would move every message. So virtual time goes by a model,
and measured times are taken once, before the run, so that a rerun charges the same.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias

from netdfl.core.errors import InputError
from netdfl.core.files import write_whole
from netdfl.core.given_files import given_text
from netdfl.core.rng import Streams
from netdfl.core.types import NodeId
from netdfl.core.units import PositiveFloat, TimeNs
from netdfl.worlds.simulated.compute_table import read_compute_table

ComputeTime: TypeAlias = Callable[[NodeId, int], int]
"""A function from (node, round) to the nanoseconds that the node's local round takes."""
Per: TypeAlias = Literal["round", "node"]
COMPUTE_FILE = "compute.json"
SCHEMA = "netdfl/compute/1"


class MeasurementRequest:
    """A request to measure how long local rounds take on this machine, before the run; a rerun reads the times."""

    def __init__(self, scale: float) -> None:
        """Use the measured times multiplied by `scale`."""
        self.scale = scale


def constant(streams: Streams, /, *, time: TimeNs = 0) -> ComputeTime:
    """Use the same time for every local round."""
    _not_negative(time=time)
    return lambda node, round: time


def uniform(streams: Streams, /, *, low: TimeNs, high: TimeNs, per: Per = "round") -> ComputeTime:
    """Draw a time uniformly from `low` to `high`, for each round, or once for each node."""
    _not_negative(low=low, high=high)
    if low > high:
        raise ValueError(f"low = {low} ns is above high = {high} ns; exchange them")
    return lambda node, round: round_ns(low + (high - low) * _draw(streams, per, node, round))


def lognormal(streams: Streams, /, *, mean: TimeNs, jitter: TimeNs, per: Per = "round") -> ComputeTime:
    """Draw a lognormal time with this mean and standard deviation, for each round, or once for each node."""
    if mean <= 0 or jitter <= 0:
        raise ValueError(f"mean = {mean} ns, jitter = {jitter} ns: both must be above 0; else write constant")
    variance = math.log1p((jitter / mean) ** 2)
    mu, sigma = math.log(mean) - variance / 2, math.sqrt(variance)

    def draw(node: NodeId, round: int) -> int:
        rng = streams.rng("compute", node, round if per == "round" else -1)
        return round_ns(math.exp(mu + sigma * float(rng.standard_normal())))

    return draw


def exponential(streams: Streams, /, *, mean: TimeNs, base: TimeNs = 0, per: Per = "round") -> ComputeTime:
    """Use `base` plus an exponential time with this mean, drawn for each round, or once for each node."""
    _not_negative(mean=mean, base=base)
    return lambda node, round: base + round_ns(-mean * math.log1p(-_draw(streams, per, node, round)))


def measured(
    streams: Streams, /, *, file: str | None = None, scale: PositiveFloat = 1.0
) -> ComputeTime | MeasurementRequest:
    """Measure each node's local round once on this machine, or read the times from another run's `compute.json`."""
    return MeasurementRequest(scale) if file is None else replay(Path(file), scale)


def table(streams: Streams, /, *, file: str, column: str = "", scale: PositiveFloat = 1.0) -> ComputeTime:
    """Take each node's time from a CSV file with a row a node: a column `compute_ms`, and `node` if rows are unordered.

    Where a node has several rows, its rounds take these times in turn, over and over. `scale` multiplies all times, as
    where the table says what one example takes.
    """
    times = [[round_ns(scale * ns) for ns in of_node] for of_node in read_compute_table(file, column)]
    return _listed(times, file, "add its row")


COMPUTE: Mapping[str, Callable[..., ComputeTime | MeasurementRequest]] = {
    "constant": constant,
    "uniform": uniform,
    "lognormal": lognormal,
    "exponential": exponential,
    "measured": measured,
    "table": table,
}


def record(path: Path, train_ns: Sequence[int]) -> None:
    """Write measured times, so that a run with `{kind: measured, file: ...}` can repeat this one."""
    write_whole(path, (json.dumps({"schema": SCHEMA, "train_ns": list(train_ns)}) + "\n").encode())


def replay(path: Path, scale: float) -> ComputeTime:
    """Read the compute times that `record` wrote to `path`, multiplied by `scale`. Raises InputError."""
    try:
        found = json.loads(given_text(path))
        times = [[round_ns(scale * int(ns))] for ns in found["train_ns"]]
    except (OSError, ValueError, TypeError, KeyError) as exc:
        raise InputError(f"{path} holds no measured times ({exc}); name the compute.json of a run") from exc
    return _listed(times, path, "measure again")


def _listed(times: Sequence[Sequence[int]], file: str | Path, remedy: str) -> ComputeTime:
    """Return compute times by which the rounds of each node take its `times`, read from `file`, over and over."""

    def take(node: NodeId, round: int) -> int:
        if node >= len(times):
            raise InputError(f"{file} has times of {len(times)} nodes, and there is a node {node}; {remedy}")
        return times[node][round % len(times[node])]

    return take


def time_ns(work: Callable[[], object], repeats: int = 3) -> int:
    """Measure the time of `work` on this machine in ns: the median of `repeats` runs after a first, untimed one."""
    work()
    took = []
    for _ in range(repeats):
        began = time.perf_counter_ns()
        work()
        took.append(time.perf_counter_ns() - began)
    return round_ns(median(took))


def slow_nodes(
    streams: Streams, num_nodes: int, /, *, factor: float, fraction: float, nodes: Sequence[NodeId]
) -> Mapping[NodeId, float]:
    """Return the slow nodes with their factor: the listed `nodes`, and a random `fraction` of all nodes."""
    count = round(fraction * num_nodes)
    drawn = streams.rng("stragglers").permutation(num_nodes)[:count].tolist()
    return dict.fromkeys(sorted({*drawn, *nodes}), factor)


def slowed(times: ComputeTime, factors: Mapping[NodeId, float]) -> ComputeTime:
    """Return compute times in which each node in `factors` takes its factor times as long."""
    return lambda node, round: round_ns(factors.get(node, 1.0) * times(node, round))


def as_others(times: ComputeTime, nodes: Collection[NodeId], clients: Sequence[NodeId]) -> ComputeTime:
    """Return compute times in which each of `nodes` takes the median time of all clients that are not in `nodes`.

    If all clients are in `nodes`, it is the median of all clients.
    """
    others = [node for node in clients if node not in nodes] or clients

    def take(node: NodeId, round: int) -> int:
        if node not in nodes:
            return times(node, round)
        return round_ns(median(times(each, round) for each in others))

    return take


def round_ns(ns: float) -> int:
    """Round a time to whole nanoseconds."""
    return round(ns)


def _draw(streams: Streams, per: Per, node: NodeId, round: int) -> float:
    return streams.uniform("compute", node, round if per == "round" else -1)


def _not_negative(**times_ns: int) -> None:
    for name, value in times_ns.items():
        if value < 0:
            raise ValueError(f"compute {name} = {value} ns is negative; expected 0 or more, like 20ms")
