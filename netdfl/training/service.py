"""The training service of a process: local rounds that are due at the same time are computed together.

The way is chosen by rule, from the model, the device and the scenario, never by measuring time:

- stacked: the steps of many nodes as one computation on matrices, a row for each node (`netdfl.training.stacked`).
  Small perceptrons on a CPU, where a step's time is mostly overhead of calls; any model on a GPU. Equal to one by one
  up to rounding.
- threads: nodes at the same time, each on one thread by itself: larger models on a CPU. Equal bit for bit, because a
  node's arithmetic, data and random streams are its own.
- alone: one after the other. For all other local rounds.

In `exact` batching nothing is stacked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeGuard

import torch

from netdfl.core.process import cores
from netdfl.core.types import Scalar
from netdfl.training.alone import CallOutcome, outcome_of
from netdfl.training.base import LocalData, StepRequests, alone
from netdfl.training.classification import Classification, RoundPass
from netdfl.training.data.examples import Samples
from netdfl.training.drawing import beside_others
from netdfl.training.sgd import LocalSteps
from netdfl.training.stacked import likeness, run_stacked, split
from netdfl.training.stacked_model import StackedModel

Batching = Literal["exact", "auto"]
Way = Literal["stacked", "threads", "alone"]
Work: TypeAlias = Callable[[], dict[int, CallOutcome]]
"""A function that computes some calls and returns their outcomes, by the calls' indices."""

WORTH_A_THREAD = 1_600_000
"""The number of parameters times batch size above which two threads beat one: about 0.1 ms of arithmetic a step."""
WORTH_A_ROW = 3_000_000
"""The number of parameters times batch size up to which stacking nodes on a CPU beats a thread for each node."""
CACHE_BYTES = 1_000_000
"""The most bytes of vectors, stacked as rows, in one computation on a CPU: they fit a core's cache."""


class DivisibleCall(Protocol):
    """A call that can leave its local steps to be computed by the service, such as a `LocalRound`."""

    @property
    def data(self) -> LocalData:
        """The training data of the call."""

    def __call__(self) -> object:
        """Compute the call directly."""

    def solve(self) -> StepRequests[object]:
        """Return the result of the call, but yield its local steps, which the service computes."""


class PendingRound(NamedTuple):
    """A local round that waits for its steps to be computed.

    Attributes:
        place: its index among the calls that are computed.
        requests: its generator, which waits to be sent the result of `steps`.
        steps: the steps that the generator yielded.
    """

    place: int
    requests: StepRequests[object]
    steps: LocalSteps


class Service:
    """A training service that computes several nodes' local rounds (calls) together, and never waits for more calls."""

    def __init__(self, batching: Batching = "exact", threads: int | None = None) -> None:
        """Use up to `threads` threads, by default as many as there are cores."""
        self.batching, self.threads = batching, threads or cores()
        self.ways: set[Way] = set()
        self._pool: ThreadPoolExecutor | None = None
        self._stacked: dict[int, StackedModel | None] = {}

    def compute(self, calls: Sequence[Callable[[], object]]) -> list[CallOutcome]:
        """Return the result or exception of each call, in order. With `exact` batching each is independent."""
        outcomes: dict[int, CallOutcome] = {}
        works: dict[Way, list[Work]] = {"stacked": [], "threads": [], "alone": []}
        groups: dict[Hashable, list[PendingRound]] = defaultdict(list)
        for place, call in enumerate(calls):
            way = self._way(call)
            if not _is_divisible(call):
                works[way].append(partial(_single, place, call))
            elif way == "stacked":
                outcomes |= self._ask(place, call.solve(), groups, works["alone"])
            else:
                works[way].append(partial(_single, place, call))
                self.ways.add(way)
        for group in groups.values():
            on_cpu = group[0].steps.y.device.type == "cpu"
            works["stacked" if on_cpu else "alone"] += self._in_rows(group)
            self.ways.add("stacked")
        for way, some in works.items():
            for found in self._run(some, threaded=way != "alone"):
                outcomes |= found
        return [outcomes[place] for place in range(len(calls))]

    def summary(self) -> Mapping[str, Scalar]:
        """Return the ways of computing local rounds that were chosen, for the run's record."""
        return {"batching": self.batching, "threads": self.threads, "ways": sorted(self.ways)}

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # how

    def _way(self, call: Callable[[], object]) -> Way:
        data = call.data if _is_divisible(call) else None
        if not isinstance(data, RoundPass) or not len(data.task.samples):
            return "alone"
        task, on_cpu = data.task, data.task.device.type == "cpu"
        if self.batching == "auto" and self._rows(task) is not None:
            return "stacked"
        large = task.model.dim * task.batch_size >= WORTH_A_THREAD
        return "threads" if on_cpu and large and self.threads > 1 and not _draws(task) else "alone"

    def _rows(self, task: Classification) -> StackedModel | None:
        """Return the model that computes many nodes of a task at once; None if that is impossible or slower."""
        model = task.model
        if not task.in_rows or not isinstance(task.samples, Samples):
            return None
        small = model.perceptron is not None and model.dim * task.batch_size <= WORTH_A_ROW
        if task.device.type == "cpu" and not small:
            return None
        if id(model) not in self._stacked:
            stacked = StackedModel(model)
            samples = task.samples.x[: task.batch_size], task.samples.y[: task.batch_size]
            self._stacked[id(model)] = stacked if stacked.agrees(task.initial(), *samples) else None
        return self._stacked[id(model)]

    def _ask(
        self,
        place: int,
        requests: StepRequests[object],
        groups: dict[Hashable, list[PendingRound]],
        singles: list[Work],
    ) -> dict[int, CallOutcome]:
        """Start the generator of the call with index `place`, and add its first request to a group of similar steps.

        Without similar steps the call is added to `singles`. Return the call's outcome where it ends at once, else
        nothing.
        """
        try:
            steps = requests.send(None)  # type: ignore[arg-type]
        except StopIteration as end:
            return {place: (end.value, None)}
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return {place: (None, error)}
        like = likeness(steps) if isinstance(steps, LocalSteps) else None
        if like is None or not isinstance(steps, LocalSteps):
            singles.append(partial(_single, place, lambda: alone(requests, steps())))
        else:
            groups[like].append(PendingRound(place, requests, steps))
        return {}

    def _in_rows(self, group: list[PendingRound]) -> Iterator[Work]:
        """Split a group of similar local rounds into parts to compute; yield a function for each.

        There is one part per thread on a CPU, or more parts if one would not fit in memory.
        """
        found = split(group[0].steps.data)
        model = self._stacked[id(found[0].task.model)] if found is not None else None
        assert model is not None, "a group is of rounds that can be stacked"
        on_cpu = group[0].steps.y.device.type == "cpu"
        most = max(4, CACHE_BYTES // group[0].steps.y.nbytes) if on_cpu else model.rows_that_fit()
        num = -(-len(group) // most)
        if on_cpu:
            num = max(num, min(self.threads, len(group) // 4))
        return (partial(_together, group[part::num], model) for part in range(num))

    def _run(self, works: Sequence[Work], *, threaded: bool) -> Iterator[dict[int, CallOutcome]]:
        if not threaded or self.threads == 1 or len(works) < 2:
            return (work() for work in works)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, "train", _begin_thread)
        return self._pool.map(lambda work: work(), works)


def _is_divisible(call: Callable[[], object]) -> TypeGuard[DivisibleCall]:
    """Return whether a call is a `DivisibleCall`, without `isinstance`, which is slow."""
    return hasattr(call, "solve") and hasattr(call, "data")


def _draws(task: Classification) -> bool:
    model = task.model
    return bool(model.sources) if model.sources is not None else model.draws(task.initial(), task.first()[0])


def _begin_thread() -> None:
    torch.set_num_threads(1)
    beside_others()


def _single(place: int, call: Callable[[], object]) -> dict[int, CallOutcome]:
    return {place: outcome_of(call)}


def _together(group: Sequence[PendingRound], model: StackedModel) -> dict[int, CallOutcome]:
    """Return the results of similar local rounds, computed together with a row of each matrix for each node."""
    try:
        found = run_stacked([each.steps for each in group], model)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return {each.place: (None, error) for each in group}
    return {
        each.place: (None, ran) if isinstance(ran, Exception) else outcome_of(partial(alone, each.requests, ran))
        for each, ran in zip(group, found, strict=True)
    }
