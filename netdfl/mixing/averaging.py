"""FedAvg's exchange: the server sends its model, and averages the models that the participants trained from it.

w+ = w + server_lr mean_i (y_i - w)      over the reports that arrived: uniformly, or by the clients' numbers of
examples

The weighted mean is sum_i n_i (y_i - w) / sum_i n_i; the number n_i comes with the report (`netdfl.training.rollback`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from netdfl.core.types import Inbox, Message, Outbox, View
from netdfl.mixing.base import Aggregation, AggregationWrapper
from netdfl.mixing.payloads import EXTRA, extras_of, pack, scalar, to_all, vector
from netdfl.training.base import Received, Update
from netdfl.training.rollback import SAMPLES
from netdfl.training.sgd import NoState

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """FedAvg's plain averaging, at the server, of the models that the clients trained and sent.

    With `by_samples`, each client's model is weighted by its number of training examples; else all models have equal
    weights.
    """

    changes: ClassVar[tuple[str, ...]] = ()
    moves_vanish: ClassVar[bool] = False
    """False: clients with different data keep moving in different directions, because nothing corrects their moves."""

    server_lr: float = 1.0
    by_samples: bool = False

    def init_server(self, x: Tensor, view: View) -> NoState:
        """Return an empty state."""
        return NoState()

    def broadcast(self, state: NoState, x: Tensor, view: View) -> Outbox:
        """Send the model to every participant."""
        return to_all(view, pack(x))

    def aggregate(self, state: NoState, x: Tensor, inbox: Inbox, view: View) -> tuple[NoState, Tensor]:
        """Move the server's model by the weighted mean of the clients' differences y_i - w, from reports that arrived.

        Leave it unchanged without a report of positive weight.
        """
        reports = [(vector(message, x), self._count(message, x)) for message in inbox]
        total = sum(count for _, count in reports)
        if not total:
            return state, x
        (first, count), *others = reports
        mean = first * count
        for report, count in others:
            mean.add_(report, alpha=count)
        mean.div_(total)
        return state, mean if self.server_lr == 1.0 else x + self.server_lr * (mean - x)

    def _count(self, message: Message, like: Tensor) -> float:
        return scalar(message, like, EXTRA + SAMPLES) if self.by_samples else 1.0

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return a client's start: the server's model and the vectors sent with it; None if no broadcast arrived."""
        for message in inbox:
            return vector(message, like).clone(), Received(extras_of(message, like))
        return None

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """Send the server the model that the client trained, and the extra vectors of its local solver."""
        return to_all(view, pack(update.x, update.extras))


@dataclass(frozen=True, kw_only=True)
class AveragingWrapper(AggregationWrapper):
    """The client's side of FedAvg, shared by methods whose server does more than average the clients' models."""

    beside: ClassVar[tuple[str, ...]] = ()
    """The names of the vectors that the server sends with every model."""
    moves_vanish: ClassVar[bool] = True
    """True: each client's move y_i - w tends to 0, because vectors kept at the server or at clients correct it."""

    inner: Aggregation = field(default_factory=Averaging)

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return the server's model and the vectors sent with it; None if no broadcast arrived.

        Raises MalformedMessage if one of the vectors in `beside` is missing or invalid.
        """
        for message, name in product(inbox, self.beside):
            vector(message, like, EXTRA + name)
        return super().adopt(inbox, like, view)
