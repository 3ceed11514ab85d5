"""The evaluation of each round's models: when it starts, and where its metrics are recorded, in every world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from netdfl.core.control import split_figure
from netdfl.core.types import NodeId
from netdfl.record.base import Recorder
from netdfl.record.status import ENDED, EvaluationStatus, FleetStatus

_SHOWN = ("test_accuracy", "test_loss", "mean_local_accuracy", "consensus_distance")


class EvaluationTracker:
    """A tracker of the models that nodes hand over for evaluation, which has each round evaluated once.

    The evaluation of a round waits for every evaluated node that may still hand over its model: not for nodes that have
    ended, nor for nodes that rejoined in a later round (`joined`). Models that come later are left out.
    """

    def __init__(
        self,
        nodes: Sequence[NodeId],
        status: FleetStatus,
        recorder: Recorder,
        now_ns: Callable[[], int],
        judge: Callable[[int, Sequence[NodeId]], None],
    ) -> None:
        """Track the models of `nodes`.

        `judge(round, of)` orders the evaluation of the models of the nodes `of`, and so causes a call of `judged`, at
        once or later.
        """
        self.joined: dict[NodeId, int] = {}
        self._nodes, self._status, self._recorder, self._now_ns, self._judge = nodes, status, recorder, now_ns, judge
        self._models: dict[int, set[NodeId]] = {}
        self._awaited: dict[int, int] = {}
        self._ordered: set[int] = set()
        self._judged: set[int] = set()

    @property
    def over(self) -> bool:
        """Whether every model that was handed over has been evaluated."""
        return not self._models and self._ordered <= self._judged

    def skip(self, rounds: Iterable[int]) -> None:
        """Mark these rounds as evaluated, so that they are not evaluated again."""
        self._ordered.update(rounds)
        self._judged.update(rounds)

    def saved(self, node: NodeId, round: int) -> None:
        """Record that `node` handed over its model of `round`."""
        if round not in self._ordered:
            self._models.setdefault(round, set()).add(node)
            self._look_at(round)

    def look(self) -> None:
        """Have those rounds evaluated whose evaluation waited only for nodes that have now ended."""
        for round in sorted(self._models):
            self._look_at(round)

    def judged(self, round: int, figures: Mapping[str, float]) -> None:
        """Record the metrics of the evaluated `round`; `figures` has each metric's value by name."""
        self._judged.add(round)
        for name, value in figures.items():
            figure, node = split_figure(name)
            self._recorder.metrics(self._now_ns(), node, round, {figure: value})
        if self._status.evaluation is None or self._status.evaluation.round <= round:
            self._status.evaluation = EvaluationStatus(round, **{name: figures.get(name) for name in _SHOWN})

    def _look_at(self, round: int) -> None:
        if self._waits(round):
            return
        models = self._models.pop(round)
        self._awaited.pop(round, None)
        self._ordered.add(round)
        left_out = sorted(set(self._nodes) - models)
        if left_out:
            self._recorder.event(self._now_ns(), None, round, "left_out", nodes=left_out)
        self._judge(round, sorted(models))

    def _waits(self, round: int) -> bool:
        """Return whether the evaluation of `round` still waits for the model of a node.

        The search continues at the node that was missing last, so that it visits each node once per round.
        """
        models, first, num = self._models[round], self._awaited.get(round, 0), len(self._nodes)
        for index in range(first, first + num):
            node = self._nodes[index % num]
            if node in models or self._status.nodes[node].phase in ENDED:
                continue
            if self.joined.get(node, 0) <= round:
                self._awaited[round] = index % num
                return True
        return False
