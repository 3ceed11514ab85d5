"""Receivers chosen by loss: a node sends to those whose training loss differs most from its own.

    p(i -> j) = exp(|f_i - f_j| / T) / sum over the candidates j != i,   k of them without replacement

drawn by adding Gumbel noise to |f_i - f_j| / T and taking the k largest, so no exponential is ever taken.
Losses spread on the messages themselves: each carries the sender's board, with the newest loss that it knows of every
node and the round it is from. It is compared with the node's own loss of that round: news takes rounds to spread
while losses fall, and the latest would make those look different that are heard of late. A candidate whose loss is
unknown or too old counts as if it were equal to the node's own. Where `wait.announce` is on, a node also tells every
node that it might have sent to and did not choose that nothing comes: on a full graph that is a message to each node
in every round, and only those to the chosen carry a share. Source: DFedSGPSM-S, Eq. 2.
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
from netdfl.mixing.base import Mixed, Mixing
from netdfl.mixing.payloads import absurd
from netdfl.topology.network import without
from netdfl.training.base import S, Update

BOARD = "board"
_LARGEST = 1e300


class Posted(NamedTuple):
    """A node's training loss, and the round that it is from."""

    round: int
    loss: float


class ByLossState(NamedTuple, Generic[S]):
    """The wrapped mixing's state, the newest losses known, one's own by round, and whom this round's shares go to."""

    inner: S
    board: Mapping[NodeId, Posted]
    own: Mapping[int, float]
    chosen: tuple[NodeId, ...]


def draw_by_loss(
    apart: Mapping[NodeId, float], candidates: Sequence[NodeId], k: int, temperature: float, noise: NDArray[np.float64]
) -> tuple[NodeId, ...]:
    """Choose `k` of `candidates` without replacement, or all where there are no more.

    `apart` is how far losses are from one's own, as far as they are known, `noise` one draw of a standard Gumbel
    variable per candidate.
    """
    scaled = [apart.get(node, 0.0) / temperature for node in candidates]
    best = np.argsort(-(np.minimum(scaled, _LARGEST) + noise), kind="stable")[:k]
    return tuple(candidates[place] for place in np.sort(best).tolist())


@dataclass(frozen=True, kw_only=True)
class ByLoss:
    """Wraps a push-sum mixing: it sends to `neighbors` out-neighbors of the view, chosen by loss, and to no others.

    `max_age` is how many rounds old a loss on the board may be; older ones are neither used nor sent.
    """

    inner: Mixing
    neighbors: int
    temperature: float
    max_age: int
    streams: Streams

    @property
    def push(self) -> bool:
        """As the wrapped mixing."""
        return self.inner.push

    def init(self, x: Tensor, view: View) -> ByLossState:
        """Nobody's loss is known."""
        return ByLossState(self.inner.init(x, view), {}, {}, ())

    def weight(self, state: ByLossState) -> float:
        """As the wrapped mixing."""
        return self.inner.weight(state.inner)

    def num_steps(self, round: int, view: View) -> int:
        """As the wrapped mixing."""
        return self.inner.num_steps(round, view)

    def outgoing(self, state: ByLossState, update: Update, step: int, view: View) -> tuple[ByLossState, Outbox]:
        """The wrapped mixing's messages to the chosen ones, each with the board."""
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
        """How far each known loss is from one's own of its round, or from that of `now` where there is none."""
        pairs = {node: (own.get(posted.round, now), posted.loss) for node, posted in board.items()}
        return {node: abs(mine - loss) for node, (mine, loss) in pairs.items() if math.isfinite(mine)}

    def _choose(self, apart: Mapping[NodeId, float], step: int, view: View) -> tuple[NodeId, ...]:
        noise = self.streams.rng("by_loss", view.node, view.round, step).gumbel(size=view.num_nodes)
        candidates = view.out_neighbors
        return draw_by_loss(apart, candidates, self.neighbors, self.temperature, noise[list(candidates)])

    def mix(self, state: ByLossState, update: Update, inbox: Inbox, step: int, view: View) -> Mixed:
        """Mix as the wrapped mixing, and keep the newest loss of every node."""
        board = dict(state.board)
        for message in inbox:
            for node, posted in _board_of(message, view.num_nodes).items():
                if node not in board or posted.round > board[node].round:
                    board[node] = posted
        mixed = self.inner.mix(state.inner, update, inbox, step, narrowed(view, state.chosen))
        return mixed._replace(state=state._replace(inner=mixed.state, board=board))


def narrowed(view: View, chosen: tuple[NodeId, ...]) -> View:
    """The view of a node that sends to `chosen` alone: what it keeps and sends still sums to 1."""
    return without(view, frozenset(view.out_neighbors) - frozenset(chosen), keep="columns")


def _with_board(outbox: Outbox, board: Mapping[NodeId, Posted]) -> Outbox:
    posts = [[node, posted.round, posted.loss] for node, posted in sorted(board.items())]
    made: dict[int, Payload] = {}
    for payload in outbox.values():
        made.setdefault(id(payload), Payload(payload.arrays, {**payload.meta, BOARD: posts}))
    return {node: made[id(payload)] for node, payload in outbox.items()}


def _board_of(message: Message, num_nodes: int) -> dict[NodeId, Posted]:
    """The board that came with a message. Raises MalformedMessage."""
    posts = message.payload.meta.get(BOARD)
    if not isinstance(posts, list | tuple) or not all(_is_post(post, message.round, num_nodes) for post in posts):
        raise absurd(message, "a board of [node, round, finite loss]", posts)
    return {node: Posted(round, float(loss)) for node, round, loss in posts}


def _is_post(post: object, latest: int, num_nodes: int) -> bool:
    match post:
        case [int(node), int(round), float(loss) | int(loss)] if bool not in map(type, (node, round, loss)):
            return 0 <= node < num_nodes and 0 <= round <= latest and math.isfinite(loss)
    return False
