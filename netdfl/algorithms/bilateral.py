"""The family of pairwise exchanges: a node trains, meets one peer, and answers others in between.

Without the bipartite fix a node that asks may itself be asked, and while it waits it answers nobody: so
waits can close a cycle. With it nodes of one half ask and those of the other answer; who answers never
waits, so nothing can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm, RoundContext
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.parameters import Asked, Sgd
from netdfl.core.lazy import lazy_module
from netdfl.core.types import Message, NodeId, Payload

if TYPE_CHECKING:
    from torch import Tensor

    from netdfl.algorithms import parts
    from netdfl.mixing import pairwise
else:
    parts = lazy_module("netdfl.algorithms.parts")
    pairwise = lazy_module("netdfl.mixing.pairwise")


class Desk:
    """Where a node's vector meets its peers': one exchange at a time, whoever began it."""

    def __init__(self, ctx: RoundContext, mixing: pairwise.Pairwise, x: Tensor) -> None:
        """Begin at `x`, shape (d,)."""
        self.ctx, self.mixing, self.x = ctx, mixing, x
        self._answered: dict[NodeId, tuple[int, int, Payload]] = {}

    def answer(self, request: Message) -> None:
        """Meet the peer that asks; what it asks a second time gets the same answer and moves nothing.

        A copy that comes after a later request is of a meeting that its sender is done with: it moves nothing
        either, and gets no answer.
        """
        epoch, round, reply = self._answered.get(request.src, (-1, -1, None))
        if request.epoch < epoch or (request.epoch == epoch and request.round < round):
            return
        if reply is None or round != request.round:
            self.x, reply = self.mixing.answer(self.x, request)
        self._answered[request.src] = request.epoch, request.round, reply
        self.ctx.reply(request, reply)


async def bilateral(ctx: RoundContext, alg: Algorithm) -> None:
    """Train while peers are answered; then ask one peer, and answer nobody until that is done."""
    s = ctx.begin(alg)
    desk = Desk(ctx, alg.mixing, s.x)
    ctx.serve(None if alg.mixing.asks_first else desk.answer)
    async for view in ctx.rounds(s.round):
        s, update = await ctx.train(s._replace(x=desk.x), alg, view)
        desk.x = desk.x + (update.x - update.before)
        peer = alg.mixing.peer(view)
        if peer is not None:
            ctx.serve(None)
            replies = await ctx.ask(view, peer, alg.mixing.request(desk.x), alg.wait)
            desk.x = await ctx.do(alg.mixing.settle, desk.x, replies)
        ctx.serve(desk.answer)
        s = s.end_round(alg, update._replace(x=desk.x), view)
        await ctx.end_round(s, view)


def ad_psgd(
    exchange: Exchange,
    /,
    *,
    sgd: Sgd = Sgd(local_epochs=1),
    order: Asked = "random",
    bipartite: bool = True,
    leave_out: bool = False,
) -> Algorithm:
    """AD-PSGD: nodes train at their own pace; each round a node and one peer set both vectors to their mean.

    x_i, x_j <- (x_i + x_j) / 2, one exchange at a time, while local steps from an earlier x_i, y <- y - lr g(y) from
    x_i to z_i, may still be under way: where they end, x_i <- x_i now + (z_i - x_i then). Sends d numbers to
    the peer that is asked and d back, keeps nothing. `bipartite` lets the nodes of one half ask and those of
    the other answer; where the graph has links inside a half, they must be left out (`leave_out`). Without
    it waits can close a cycle: with `order: successor` they do. Who only answers is through with its own
    rounds early and goes on answering: what its last model becomes then is in no record.
    Source: Lian et al. 2018.
    """
    if exchange.compressor is not None:
        raise ValueError("ad_psgd exchanges whole vectors; remove compression, or use choco_sgd or deepsqueeze")
    local = parts.local_sgd(sgd)
    mixing = pairwise.Pairwise(order=order, streams=exchange.streams)
    return Algorithm(family="bilateral", start=parts.Plain(), local=local, mixing=mixing, wait=exchange.wait)
