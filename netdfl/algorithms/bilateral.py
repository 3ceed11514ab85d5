"""The family of pairwise exchanges: a node trains, meets one peer, and answers others in between.

Without the bipartite fix a node that asks may itself be asked, and it answers no request while it waits: so waits can
close a cycle. With the fix, the nodes are in two halves: nodes of one half ask and nodes of the other half answer. An
answering node keeps the pace of its asking peers: each asking node announces the end of its round, and the answering
node's round ends after all these announcements, while it continues to answer. So the answering node's last model
includes every peer's last exchange, and no asking node waits for it: there is no cycle.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from netdfl.algorithms.base import Algorithm, RoundContext
from netdfl.algorithms.exchange import AnySgd, Exchange
from netdfl.algorithms.late import parts
from netdfl.core.types import Message, NodeId, Payload, View

if TYPE_CHECKING:
    from torch import Tensor


THROUGH = 1  # the step number of the message by which an asking node announces the end of its round
PATIENCE = 2  # the factor on a deadline: a wait for asking nodes contains their own waits


class Desk:
    """One node's vector in pairwise exchanges, and its answers to peers. Only one exchange happens at a time."""

    def __init__(self, ctx: RoundContext, mixing: parts.Pairwise, x: Tensor) -> None:
        """Start with the model `x`, shape (d,), of the node behind `ctx`; `mixing` computes requests and answers."""
        self.ctx, self.mixing, self.x = ctx, mixing, x
        self._answered: dict[NodeId, tuple[int, int, Payload]] = {}

    def answer(self, request: Message) -> None:
        """Answer a peer's request and change this node's vector; repeat the same answer to a repeated request."""
        epoch, round, reply = self._answered.get(request.src, (0, 0, None))
        if request.epoch < epoch or (request.epoch == epoch and request.round < round):
            return
        if reply is None or round != request.round:
            with self.ctx.drawing("answer", request.round, request.src):
                self.x, reply = self.mixing.answer(self.x, request)
        self._answered[request.src] = request.epoch, request.round, reply
        self.ctx.reply(request, reply)


async def bilateral(ctx: RoundContext, alg: Algorithm) -> None:
    """Train while peers are answered; then ask one peer, and answer no one until its reply arrives."""
    s, first = ctx.begin(alg), alg.mixing.step == "before"
    desk = Desk(ctx, alg.mixing, s.x)
    ctx.serve(None if alg.mixing.asks_first else desk.answer)
    async for view in ctx.rounds(s.round):
        s, update = await ctx.train(s._replace(x=desk.x), alg, view)
        step = update.x - update.before
        desk.x = desk.x + step if first else desk.x
        await _meet(ctx, alg, desk, view)
        desk.x = desk.x if first else desk.x + step
        with ctx.drawing("after mixing", view.round):
            s = s.end_round(alg, update._replace(x=desk.x), view)
        await ctx.end_round(s, view)
    ctx.serve(desk.answer)  # also where no round was left: others may have some


async def _meet(ctx: RoundContext, alg: Algorithm, desk: Desk, view: View) -> None:
    """Ask one peer, answering nobody meanwhile; or answer until all asking nodes have finished the round."""
    with ctx.drawing("peer", view.round):
        peer = alg.mixing.peer(view)
    if peer is not None and not ctx.owed(peer):
        ctx.serve(None)
        with ctx.drawing("request", view.round):
            request = alg.mixing.request(desk.x)
        replies = await ctx.ask(view, peer, request, alg.wait)
        desk.x = await ctx.do(alg.mixing.settle, desk.x, replies)
    ctx.serve(desk.answer)
    if alg.mixing.halves and view.out_neighbors:
        await ctx.send(view, THROUGH, dict.fromkeys(view.out_neighbors, Payload()))
    elif alg.mixing.halves and view.in_neighbors:
        need = "all" if ctx.is_last(view) else alg.wait.need
        await ctx.gather(view, THROUGH, replace(alg.wait, need=need, patience=PATIENCE, cumulative=True))


def ad_psgd(
    exchange: Exchange,
    /,
    *,
    sgd: AnySgd = AnySgd(local_epochs=1),
    order: Literal["random", "successor"] = "random",
    bipartite: bool = True,
    leave_out: bool = False,
    step: Literal["before", "after"] = "before",
) -> Algorithm:
    """AD-PSGD: nodes train at their own pace; each round a node and one peer set both vectors to their mean.

    x_i, x_j <- (x_i + x_j) / 2, one exchange at a time, while local steps from an earlier x_i, y <- y - lr g(y) from
    x_i to z_i, may still be under way: where they end, x_i <- x_i now + (z_i - x_i then). `step: before` takes that
    step before the node's own exchange of the round, so that it is shared in the same round, as in `dpsgd`; `after`
    takes it afterwards, as the paper has it. Sends d numbers to the peer that is asked and d back, keeps nothing.
    `bipartite` lets the nodes of one half ask and the nodes of the other half answer; where the graph has links inside
    a half, they must be left out (`leave_out`). Without it waits can close a cycle: with `order: successor` they do. An
    asking node announces the end of its round to its peers of the other half (a message of no numbers); a peer ends its
    round after all these announcements, and continues to answer. With `delivery: acknowledged` a request is sent again
    until its reply is here, and is answered once: a loss moves both partners or none. Source: Lian et al. 2018.
    """
    if exchange.compressor is not None:
        raise ValueError("ad_psgd exchanges whole vectors; remove compression, or use choco_sgd or deepsqueeze")
    local = parts.local_sgd(sgd)
    mixing = parts.Pairwise(order=order, streams=exchange.streams, halves=bipartite, step=step)
    return Algorithm(family="bilateral", start=parts.PlainStart(), local=local, mixing=mixing, wait=exchange.wait)
