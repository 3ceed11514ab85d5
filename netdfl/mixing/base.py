"""The contract of mixing: the messages of a node, and the update of its model from received ones. No I/O, no clock.

A mixing is one function for sending and one for receiving, over an explicit state that can be saved. The loop that runs
an algorithm's rounds calls these functions; nothing here awaits. So a mixing can be tested with a few vectors and
without a network, and runs the same in a simulated and a real fleet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, runtime_checkable

from typing_extensions import TypeVar

from netdfl.core.renamed import renamed
from netdfl.core.types import Inbox, Outbox, View
from netdfl.training.base import Extras, Objective, Received, S, Update

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T", contravariant=True, default=object)

LEAST_WEIGHT = 2.0**-80
"""The smallest usable push-sum weight. Below it x / w is no model any more, because x underflows before w does."""


def has_mass(weight: float) -> bool:
    """Return whether a push-sum weight is large enough to divide by (`LEAST_WEIGHT`)."""
    return abs(weight) >= LEAST_WEIGHT


class MixResult(NamedTuple, Generic[S]):
    """The result of one step of mixing: the new state, the mixed update, and received vectors for the local solver."""

    state: S
    update: Update
    received: Received = Received()


class Mixing(Protocol[S]):
    """A method that combines a node's vector with its neighbors' vectors. The state is a NamedTuple.

    With `push`, senders decide the weights (columns of the matrix sum to 1): a message is a share of the sender's
    push-sum mass, and is used however late it arrives. Otherwise receivers decide them (rows sum to 1).
    """

    @property
    def push(self) -> bool:
        """Whether the method is a push-sum method."""

    def init(self, x: Tensor, view: View) -> S:
        """Return the method's state before round 0, for a node with the parameters `x`, shape (d,)."""

    def weight(self, state: S) -> float:
        """Return the push-sum weight w; 1 for every other method."""

    def num_steps(self, round: int, view: View) -> int:
        """Return the number of exchanges in this round: 1; Q for multiple gossip; 0 without communication."""

    def outgoing(self, state: S, update: Update, step: int, view: View) -> tuple[S, Outbox]:
        """Return the messages of exchange `step`. Payloads are copies: later writes to `update` don't reach them."""

    def mix(self, state: S, update: Update, inbox: Inbox, step: int, view: View) -> MixResult[S]:
        """Combine the node's vector with the vectors received in exchange `step`.

        `inbox.missing` are the senders whose message did not arrive.
        """


@dataclass(frozen=True, kw_only=True)
class _FixedSteps:
    """A base of mixings that make the same number of exchanges, `steps`, in each round."""

    steps: int = 1

    def num_steps(self, round: int, view: View) -> int:
        """Return the same number for every round."""
        return self.steps


class RowMixing(_FixedSteps):
    """A mixing by the receivers' weights (rows of the matrix sum to 1), without a push-sum weight."""

    push = False

    def weight(self, state: object) -> float:
        """Return 1, because the method has no push-sum weight."""
        return 1.0


class _WeightState(Protocol):
    @property
    def weight(self) -> float: ...


class ShareMixing(_FixedSteps):
    """A mixing by shares of mass (columns of the matrix sum to 1), with the push-sum weight w in its state."""

    push = True

    def weight(self, state: _WeightState) -> float:
        """Return the push-sum weight w; gradients are taken at x / w."""
        return state.weight


class Refinement(Protocol[S]):
    """Additional training of the server's model by the server itself, after aggregation; it runs off the event loop."""

    def alone(self, view: View) -> bool:
        """Return whether the server's own training replaces the whole round of `view`, so that no messages are sent."""

    def refine(self, state: S, x: Tensor, objective: Objective, view: View) -> tuple[S, Tensor]:
        """Return the new state of the server's aggregation, and its model `x` after training it by `objective`."""


class Aggregation(Protocol[S]):
    """The exchange of models between a server and its clients: both ends of one round."""

    @property
    def changes(self) -> tuple[str, ...]:
        """The names of vectors in clients' reports, besides the model, that are changes: the server adds them up.

        If such a vector is compressed, the client must add the decoded change, as the server does.
        """

    @property
    def moves_vanish(self) -> bool:
        """Whether each client's move y_i - w from the server's model w tends to 0 as the method converges.

        Then the mean over the clients that report may replace the mean over all.
        """

    def init_server(self, x: Tensor, view: View) -> S:
        """Return the server's state before round 0."""

    def broadcast(self, state: S, x: Tensor, view: View) -> Outbox:
        """Return the server's messages, with the model `x`, to the clients that take part in the round."""

    def aggregate(self, state: S, x: Tensor, inbox: Inbox, view: View) -> tuple[S, Tensor]:
        """Return the server's new state and model, computed from the clients' messages (reports) in `inbox`."""

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return the model from which a client starts, shaped like `like`, and other vectors in the server's message.

        Return None if no message of the server arrived.
        """

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """Return a client's message to the server after local training: its model and the vectors that go with it."""


@dataclass(frozen=True, kw_only=True)
class AggregationWrapper:
    """A wrapper around a server-client exchange of models, which by default passes each call on to the `inner` one."""

    inner: Aggregation

    @property
    def changes(self) -> tuple[str, ...]:
        """The wrapped exchange's names of vectors in clients' reports that are changes, which the server adds up."""
        return self.inner.changes

    @property
    def moves_vanish(self) -> bool:
        """Whether, by the wrapped method, each client's move from the server's model tends to 0 as it converges."""
        return self.inner.moves_vanish

    def adopt(self, inbox: Inbox, like: Tensor, view: View) -> tuple[Tensor, Received] | None:
        """Return the wrapped exchange's start for a client: the server's model, and vectors sent with it."""
        return self.inner.adopt(inbox, like, view)

    def report(self, update: Update, received: Received, view: View) -> Outbox:
        """Return a client's message to the server after local training, as the wrapped exchange makes it."""
        return self.inner.report(update, received, view)


@runtime_checkable
class StatefulAggregation(Protocol[S]):
    """An exchange of models with a server whose clients keep a state between their reports, such as error feedback."""

    def init_client(self, x: Tensor, view: View) -> S:
        """Return a client's state before round 0."""

    def notice(self, state: S, inbox: Inbox, view: View) -> S:
        """Return a client's state, updated by the server's message of the round, which is in `inbox` if it arrived."""

    def report_from(self, state: S, update: Update, received: Received, view: View) -> tuple[S, Outbox, Tensor, Extras]:
        """Return a client's new state and messages, and what the server loses by compression.

        The last two values are the client's model as the server decodes it, shape (d,), and for each other vector in
        the report, the part that compression withholds.
        """


@runtime_checkable
class MeteredMixing(Protocol[T]):
    """A mixing that has additional metrics for the record of every round."""

    def figures(self, state: T) -> Mapping[str, float]:
        """Return the additional metrics by their names in the record; counts are totals since the start."""


if not TYPE_CHECKING:
    __getattr__ = renamed(
        __name__,
        {
            "Around": "AggregationWrapper",
            "ByRows": "RowMixing",
            "ByShares": "ShareMixing",
            "Counting": "MeteredMixing",
            "Mixed": "MixResult",
            "Remembering": "StatefulAggregation",
        },
    )
