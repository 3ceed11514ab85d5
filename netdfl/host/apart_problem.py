"""Training on data that stay with the clients: each client's task reads the client's own file, and no other file.

The average model can only be tested if the scenario names a common test file. A client tests its own model, at the end
of a round, on its own machine, with examples that it does not train on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from netdfl.core.errors import InputError
from netdfl.core.types import NodeId
from netdfl.host.problem import Figures
from netdfl.host.training_problem import TrainingProblem
from netdfl.training.base import NOTHING, Kept
from netdfl.training.classification import Classification, outcome
from netdfl.training.data.client_files import ClientFiles
from netdfl.training.data.examples import Examples, Samples

OWN = "personal_"
"""Prefix of the names of metrics on a client's own held-out examples."""


class ApartTask(Classification):
    """The task of a client whose data no other node has; `held` are the client's own test examples."""

    def __init__(self, *given: Any, held: Samples | None, metrics: Any, eval_batch: int, **more: Any) -> None:
        """Store the test examples `held` and how to evaluate on them; the rest are the base class's arguments.

        `metrics` computes the metrics (None: the accuracy), in batches of `eval_batch` examples.
        """
        super().__init__(*given, **more)
        self.held, self.metrics, self.eval_batch = held, metrics, eval_batch

    def judge_own(self, x: Tensor, weight: float) -> Figures:
        """Return metrics of the model x / weight on the client's own test examples; empty if it has none.

        `weight` is the push-sum weight, 1 without push-sum.
        """
        if self.held is None or not weight:
            return {}
        z = x if weight == 1.0 else x / weight
        judged = outcome(self.model, z, self.held, self.eval_batch)
        if self.metrics is None:
            right = (judged.outputs.argmax(-1) == judged.targets).double().mean()
            return {f"{OWN}accuracy": float(right), f"{OWN}loss": judged.loss}
        figures = {f"{OWN}{name}": float(n) for name, n in self.metrics(judged.outputs, judged.targets).items()}
        return figures | {f"{OWN}loss": judged.loss}


class ApartProblem(TrainingProblem):
    """The training problem of a fleet in which each client's data stay on the client's own machine."""

    @override
    def _share_out(self) -> tuple[list[NDArray[np.int64]], None]:
        if self.split.partition.kind != "iid":
            raise ValueError("the data are given by client, in files of their own: leave partition out")
        return [np.arange(len(self.shared.train))] * self.num_clients, None

    @property
    @override
    def shares_digest(self) -> str:
        return ""

    @override
    def _check_batches(self) -> None:
        """Check that the model has no running statistics, which would need training examples where it is evaluated.

        Sizes of batches are not checked: only a client itself knows its number of examples.
        """
        if self.model.buffers.size or self.model.keeps_buffers:
            raise ValueError("models with running statistics need training examples where they are judged: use another")

    @override
    def _not_used(self) -> Iterator[str]:
        if self.shared.test is None:
            yield "no test_file: the average model is not judged, each client judges its own on client_test of its data"

    def check_files(self, nodes: Iterable[NodeId]) -> None:
        """Read the data files of `nodes`, which run on this machine. Raises DatasetError for the first faulty file."""
        for node in nodes:
            self._files.of(node)

    @property
    def _files(self) -> ClientFiles:
        assert isinstance(self.data, ClientFiles)
        return self.data

    @override
    def task(self, node: NodeId, device: str) -> ApartTask:
        """Return the client's task on its own file. Raises DatasetError."""
        self.move_to(device)
        own, held = self._held_out_of(node, self._files.of(node))
        return ApartTask(
            self.model,
            self.start.to(device),
            own.to(device),
            node=node,
            streams=self.streams,
            batch_size=self.spec.batch_size,
            num_labels=self.shared.num_classes,
            drop_last=self.spec.drop_last,
            held=held,
            metrics=self.metrics,
            eval_batch=self.spec.eval_batch,
        )

    def _held_out_of(self, node: NodeId, own: Samples) -> tuple[Samples, Samples | None]:
        """Split a client's `own` examples into training and test examples; the latter are None if none are held out.

        Raises InputError if the examples are too few.
        """
        share = self.split.client_test
        if not share:
            return own, None
        order = self.streams.rng("client_test", node).permutation(len(own))
        cut = round(share * len(own))
        if not 0 < cut < len(own):
            raise InputError(f"node {node} has {len(own)} examples: too few to hold a test set out of")
        return own.only(np.sort(order[cut:])), own.only(np.sort(order[:cut]))

    @override
    def evaluate(self, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        return {} if self.shared.test is None else super().evaluate(x, kept, alone=alone)

    @override
    def evaluate_trained(self, x: Tensor, kept: Kept = NOTHING, *, alone: bool = False) -> Figures:
        raise InputError("the clients' training examples lie on their own machines: no figures of all of them")

    @override
    def _figures_of(self, node: NodeId, at: Tensor) -> Figures:
        return {} if self.shared.test is None else self._judged(at, self.shared.test, "test")

    @override
    def _examples_of(self, node: NodeId | None) -> Examples:
        return self.shared.train

    @override
    def partition(self) -> None:
        """Return None, as only a client itself knows the classes of its examples."""
        return
