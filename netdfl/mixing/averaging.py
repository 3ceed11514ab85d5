"""FedAvg's exchange: the server sends its model, averages what the participants made of it.

w+ = w + server_lr mean_i (y_i - w)      over the reports that came: uniformly, or by how many examples clients have

The second is sum_i n_i (y_i - w) / sum_i n_i; n_i comes with the report (`netdfl.training.rollback`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from netdfl.core.types import Inbox, Message, Outbox, View
from netdfl.mixing.base import Aggregation, Around
from netdfl.mixing.payloads import EXTRA, extras_of, pack, scalar, to_all, vector
from netdfl.training.base import Received, Update
from netdfl.training.rollback import SAMPLES
from netdfl.training.sgd import NoState

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """Plain averaging; see `Aggregation`. `by_samples`: each report counts as its client's examples do."""

    changes: ClassVar[tuple[str, ...]] = ()
    moves_vanish: ClassVar[bool] = False
    """Clients that disagree pull against each other."""

    server_lr: float = 1.0
    by_samples: bool = False

    def init_server(self, x: Tensor, view: View) -> NoState:
        """Nothing to keep."""
        return NoState()

    def broadcast(self, state: NoState, x: Tensor, view: View) -> Outbox:
        """The model, to every participant."""
        return to_all(view, pack(x))

    def aggregate(self, state: NoState, x: Tensor, inbox: Inbox, view: View) -> tuple[NoState, Tensor]:
        """Move the model by the mean of the differences that came; none came, or none that counts: it stays."""
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
        """The server's model and extras, if they came."""
        for message in inbox:
            return vector(message, like).clone(), Received(extras_of(message, like))
        return None

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """The trained model and the solver's extras."""
        return to_all(view, pack(update.x, update.extras))


@dataclass(frozen=True, kw_only=True)
class AroundAveraging(Around):
    """What an exchange that averages, and does more at the server, has of plain averaging."""

    beside: ClassVar[tuple[str, ...]] = ()
    """The names of the vectors that go down with every model."""
    moves_vanish: ClassVar[bool] = True
    """Clients are corrected by what the server or they themselves keep."""

    inner: Aggregation = field(default_factory=Averaging)

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """The server's model and extras, if they came. Raises MalformedMessage where one is missing."""
        for message, name in product(inbox, self.beside):
            vector(message, like, EXTRA + name)
        return super().adopt(inbox, like, view)
