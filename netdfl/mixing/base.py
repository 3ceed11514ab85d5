"""The contract of mixing: what a node sends, and what it makes of what comes. No I/O, no clock.

A mixing is one step function for sending and one for receiving, over an explicit state that can be
saved. The loop of the family calls them; nothing here awaits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, runtime_checkable

from typing_extensions import TypeVar

from netdfl.core.types import Inbox, Outbox, View
from netdfl.training.base import Extras, Objective, Received, S, Update

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T", contravariant=True, default=object)

LEAST_WEIGHT = 2.0**-80
"""A push-sum weight below this is none to speak of: x / w is no model any more, as x underflows before w does."""


def has_mass(weight: float) -> bool:
    """Whether a push-sum weight is one to divide by."""
    return abs(weight) >= LEAST_WEIGHT


class Mixed(NamedTuple, Generic[S]):
    """What one step of mixing gives: the new state, the update carried on, and news for the solver."""

    state: S
    update: Update
    received: Received = Received()


class Mixing(Protocol[S]):
    """How a node's vector meets its neighbors' vectors. The state is a NamedTuple.

    `push` says that the matrix in use is the senders' (columns sum to 1: shares of mass), so a late
    message is mass and is never dropped by age; otherwise it is the receivers' (rows sum to 1).
    """

    @property
    def push(self) -> bool:
        """True for push-sum methods."""

    def init(self, x: Tensor, view: View) -> S:
        """The state before round 0 at parameters `x`, shape (d,)."""

    def weight(self, state: S) -> float:
        """The push-sum weight w; 1 for every other method."""

    def num_steps(self, round: int, view: View) -> int:
        """Exchanges in this round: 1; Q for multiple gossip; 0 for a round without communication."""

    def outgoing(self, state: S, update: Update, step: int, view: View) -> tuple[S, Outbox]:
        """What to send in `step`. Payloads are snapshots: later writes to `update` don't reach them."""

    def mix(self, state: S, update: Update, inbox: Inbox, step: int, view: View) -> Mixed[S]:
        """Mix what came in `step`; what did not is in `inbox.missing`. `update`'s vectors stay as they are."""


@dataclass(frozen=True, kw_only=True)
class _Repeated:
    """A mixing of `steps` exchanges in each round, one after the other."""

    steps: int = 1

    def num_steps(self, round: int, view: View) -> int:
        """As many in every round."""
        return self.steps


class ByRows(_Repeated):
    """A mixing by the receivers' weights: there is no push-sum weight."""

    push = False

    def weight(self, state: object) -> float:
        """Always 1."""
        return 1.0


class _Weighted(Protocol):
    @property
    def weight(self) -> float: ...


class ByShares(_Repeated):
    """A mixing by shares of mass; its state holds w."""

    push = True

    def weight(self, state: _Weighted) -> float:
        """w: gradients are taken at x / w."""
        return state.weight


class Refinement(Protocol[S]):
    """What a server does with its model by itself, once it has aggregated: long work, off the event loop."""

    def alone(self, view: View) -> bool:
        """Whether it is all that happens in the view's round: nobody sends anything."""

    def refine(self, state: S, x: Tensor, objective: Objective, view: View) -> tuple[S, Tensor]:
        """The server's new state (its aggregation's) and model."""


class Aggregation(Protocol[S]):
    """How a server and its clients exchange models: the two ends of one round."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The names of the reports' extras that the server adds up; compressed, clients must add the same."""

    @property
    def moves_vanish(self) -> bool:
        """Whether y_i - w goes to 0 for every client where the method settles; then those that came stand for all."""

    def init_server(self, x: Tensor, view: View) -> S:
        """The server's state before round 0."""

    def broadcast(self, state: S, x: Tensor, view: View) -> Outbox:
        """What the server sends to the round's participants."""

    def aggregate(self, state: S, x: Tensor, inbox: Inbox, view: View) -> tuple[S, Tensor]:
        """The server's new state and model from the reports that came."""

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """A client's starting vector, shaped as `like`, and extras from the broadcast; None if none came."""

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """What a client sends back."""


@dataclass(frozen=True, kw_only=True)
class Around:
    """What an aggregation around another has of that one."""

    inner: Aggregation

    @property
    def changes(self) -> tuple[str, ...]:
        """As the wrapped one."""
        return self.inner.changes

    @property
    def moves_vanish(self) -> bool:
        """As the wrapped one."""
        return self.inner.moves_vanish

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """As the wrapped one."""
        return self.inner.adopt(inbox, like, view)

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """As the wrapped one."""
        return self.inner.report(update, received, view)


@runtime_checkable
class Remembering(Protocol[S]):
    """An `Aggregation` whose clients keep something between their reports (error feedback)."""

    def init_client(self, x: Tensor, view: View) -> S:
        """A client's state before round 0."""

    def notice(self, state: S, inbox: Inbox, view: View) -> S:
        """A client's state once the broadcast came."""

    def report_from(self, state: S, update: Update, received: Received, view: View) -> tuple[S, Outbox, Tensor, Extras]:
        """A client's new state, what it sends back, and how the server will read that.

        The last two are the client's model as the server sees it, shape (d,), and what it will miss of the extras.
        """


@runtime_checkable
class Counting(Protocol[T]):
    """A mixing that counts what is worth recording every round, beside what all record."""

    def figures(self, state: T) -> Mapping[str, float]:
        """Figures by the names of the record's metrics, counted from the start."""
