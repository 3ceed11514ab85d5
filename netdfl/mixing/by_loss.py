"""Receivers chosen by loss: a node prefers neighbors whose training loss differs most from its own.

    p(i -> j) = exp(|f_i - f_j| / T) / sum over the candidates j != i,   k of them without replacement

The choice adds Gumbel noise to |f_i - f_j| / T and takes the k largest, so no exponential is ever computed.

Losses spread on the messages themselves: each carries the sender's board, a table of the newest known loss of every
node and its round. A loss is compared with the node's own loss of the same round: losses take rounds to spread and fall
meanwhile, so a comparison with the node's latest loss would make distant nodes look different. A candidate whose loss
is unknown or too old counts as equal to the node's own.

Where `wait.announce` is on, a node also sends an empty message to every candidate that it did not choose: on a full
graph that is a message to each node in every round, of which only the chosen ones carry a share.
Source: DFedSGPSM-S, Eq. 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from netdfl.core.rng import Streams
from netdfl.core.types import Inbox, Message, NodeId, Outbox, Payload, View
from netdfl.mixing.base import Mixing, MixResult
from netdfl.mixing.payloads import absurd
from netdfl.topology.network import without
from netdfl.training.base import S, Update

BOARD = "board"
_LARGEST = 1e300


class Posted(NamedTuple):
    """A node's training loss as other nodes know it from messages, and the round of that loss."""

    round: int
    loss: float


class ByLossState(NamedTuple, Generic[S]):
    """The state of a node that chooses its receivers by loss.

    Attributes:
        inner: the wrapped mixing's state.
        board: the newest loss of each node that this node knows.
        own: the node's own loss by round.
        chosen: the receivers of this round.
    """

    inner: S
    board: Mapping[NodeId, Posted]
    own: Mapping[int, float]
    chosen: tuple[NodeId, ...]


def draw_by_loss(
    apart: Mapping[NodeId, float], candidates: Sequence[NodeId], k: int, temperature: float, noise: NDArray[np.float64]
) -> tuple[NodeId, ...]:
    """Choose `k` of `candidates` at random without replacement, preferring large loss differences; all if fewer.

    `apart` are the known distances of losses from the node's own, `noise` one draw of a standard Gumbel variable per
    candidate.
    """
    scaled = [apart.get(node, 0.0) / temperature for node in candidates]
    best = np.argsort(-(np.minimum(scaled, _LARGEST) + noise), kind="stable")[:k]
    return tuple(candidates[place] for place in np.sort(best).tolist())


@dataclass(frozen=True, kw_only=True)
class ByLoss:
    """A wrapper around a push-sum mixing that sends to `neighbors` of the out-neighbors, chosen by their loss.

    `max_age` is the largest age of a loss on the board in rounds; older ones are neither used nor sent.
    """

    inner: Mixing
    neighbors: int
    temperature: float
    max_age: int
    streams: Streams

    @property
    def push(self) -> bool:
        """Whether the wrapped mixing is a push-sum method."""
        return self.inner.push

    def init(self, x: Tensor, view: View) -> ByLossState:
        """Return a state without any known loss."""
        return ByLossState(self.inner.init(x, view), {}, {}, ())

    def weight(self, state: ByLossState) -> float:
        """Return the wrapped mixing's push-sum weight."""
        return self.inner.weight(state.inner)

    def num_steps(self, round: int, view: View) -> int:
        """Return the wrapped mixing's number of exchanges."""
        return self.inner.num_steps(round, view)

    def outgoing(self, state: ByLossState, update: Update, step: int, view: View) -> tuple[ByLossState, Outbox]:
        """Return the wrapped mixing's messages to the chosen neighbors; each also carries all known losses of nodes."""
        oldest = view.round - self.max_age
        board = {node: posted for node, posted in state.board.items() if posted.round >= oldest}
        own = {round: loss for round, loss in state.own.items() if round >= oldest}
        if math.isfinite(update.loss):
            board[view.node] = Posted(view.round, update.loss)
            own[view.round] = update.loss
        chosen = self._choose(self.apart(own, update.loss, board), step, view)
        inner, outbox = self.inner.outgoing(state.inner, update, step, narrowed(view, chosen))
        return ByLossState(inner, board, own, chosen), _with_board(outbox, board)

    @staticmethod
    def apart(own: Mapping[int, float], now: float, board: Mapping[NodeId, Posted]) -> dict[NodeId, float]:
        """Return the distance of each node's known loss from this node's loss in the same round, or else from `now`."""
        pairs = {node: (own.get(posted.round, now), posted.loss) for node, posted in board.items()}
        return {node: abs(mine - loss) for node, (mine, loss) in pairs.items() if math.isfinite(mine)}

    def _choose(self, apart: Mapping[NodeId, float], step: int, view: View) -> tuple[NodeId, ...]:
        noise = self.streams.rng("by_loss", view.node, view.round, step).gumbel(size=view.num_nodes)
        candidates = view.out_neighbors
        return draw_by_loss(apart, candidates, self.neighbors, self.temperature, noise[list(candidates)])

    def mix(self, state: ByLossState, update: Update, inbox: Inbox, step: int, view: View) -> MixResult:
        """Combine received vectors by the wrapped mixing, and store the latest loss of every node."""
        board = dict(state.board)
        for message in inbox:
            for node, posted in _board_of(message, view.num_nodes).items():
                if node not in board or posted.round > board[node].round:
                    board[node] = posted
        mixed = self.inner.mix(state.inner, update, inbox, step, narrowed(view, state.chosen))
        return mixed._replace(state=state._replace(inner=mixed.state, board=board))


def narrowed(view: View, chosen: tuple[NodeId, ...]) -> View:
    """Return the view changed so that the node sends only to `chosen`; the shares it keeps and sends still sum to 1."""
    return without(view, frozenset(view.out_neighbors) - frozenset(chosen), keep="columns")


def _with_board(outbox: Outbox, board: Mapping[NodeId, Posted]) -> Outbox:
    posts = [[node, posted.round, posted.loss] for node, posted in sorted(board.items())]
    made: dict[int, Payload] = {}
    for payload in outbox.values():
        made.setdefault(id(payload), Payload(payload.arrays, {**payload.meta, BOARD: posts}))
    return {node: made[id(payload)] for node, payload in outbox.items()}


def _board_of(message: Message, num_nodes: int) -> dict[NodeId, Posted]:
    """Return the losses of nodes that a message carries, with the round of each. Raises MalformedMessage."""
    posts = message.payload.meta.get(BOARD)
    if not isinstance(posts, list | tuple) or not all(_is_post(post, message.round, num_nodes) for post in posts):
        raise absurd(message, "a board of [node, round, finite loss]", posts)
    return {node: Posted(round, float(loss)) for node, round, loss in posts}


def _is_post(post: object, latest: int, num_nodes: int) -> bool:
    match post:
        case [int(node), int(round), float(loss) | int(loss)] if bool not in map(type, (node, round, loss)):
            return 0 <= node < num_nodes and 0 <= round <= latest and math.isfinite(loss)
    return False
