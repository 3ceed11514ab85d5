"""The round loops of algorithm families. Each reads like the paper's algorithm; all computations are in the parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from netdfl.algorithms.base import Algorithm, FamilyName, NodeState, RoundContext
from netdfl.algorithms.bilateral import bilateral
from netdfl.algorithms.overlap import overlap
from netdfl.algorithms.own import of_update, unwritten
from netdfl.core.types import Inbox, Outbox, Role, View
from netdfl.mixing.base import StatefulAggregation
from netdfl.mixing.slow_momentum import SlowMomentum
from netdfl.training.base import Received, Update

if TYPE_CHECKING:
    from torch import Tensor


async def gossip(ctx: RoundContext, alg: Algorithm) -> None:
    """Run rounds of gossip or push-sum: train, send, receive, mix."""
    s = ctx.begin(alg)
    async for view in ctx.rounds(s.round):
        s, update = await ctx.train(s, alg, view)
        for step in range(ctx.exchanges(view)):
            s, outbox = await ctx.do(s.outgoing, alg, update, step, view)
            await ctx.send(view, step, outbox)
            inbox = await ctx.gather(view, step, alg.wait)
            s, update = await ctx.do(s.mix, alg, update, inbox, step, view)
            del inbox, outbox  # their vectors are not kept through the next local round
        with ctx.drawing("after mixing", view.round):
            s = s.end_round(alg, update, view)
        await ctx.end_round(s, view)


DOWN, UP = 0, 1
PATIENCE = 4  # the factor on a deadline: a client's wait contains the server's own


async def server(ctx: RoundContext, alg: Algorithm) -> None:
    """Run rounds with a server: it sends its model, participants train and report, the server aggregates."""
    s = ctx.begin(alg)
    async for view in ctx.rounds(s.round):
        alone = alg.served_alone(view)
        if view.role is Role.SERVER:
            s = s if alone else await _serve(ctx, alg, s, view)
            s = await ctx.refine(s, alg, view)
        elif view.active and not alone:
            s = await _take_part(ctx, alg, s, view)
        s = s._replace(round=view.round + 1)
        await ctx.end_round(s, view)


async def _serve(ctx: RoundContext, alg: Algorithm, s: NodeState, view: View) -> NodeState:
    given = {"the model that it was given": s.x}
    with unwritten(alg.mixing, view, "broadcast", given=given):
        outbox = await ctx.do(alg.mixing.broadcast, s.mixing, s.x, view)
    await ctx.send(view, DOWN, outbox)
    inbox = await ctx.gather(view, UP, alg.wait)
    with unwritten(alg.mixing, view, "aggregate", inbox, given):
        mixing, x = await ctx.do(alg.mixing.aggregate, s.mixing, s.x, inbox, view)
    return s._replace(x=x, mixing=mixing)


async def _take_part(ctx: RoundContext, alg: Algorithm, s: NodeState, view: View) -> NodeState:
    server = () if view.server is None else (view.server,)  # without which there is no round, gone or not
    inbox = await ctx.gather(view, DOWN, replace(alg.wait, patience=PATIENCE, essential=True), server)
    inbox = of_server(inbox, view)
    with unwritten(alg.mixing, view, "adopt", inbox, {"the model that it was given": s.x}):
        adopted = await ctx.do(alg.mixing.adopt, inbox, s.x, view)
    if adopted is None:
        return s
    x, received = adopted
    s, update = await ctx.train(noticed(alg, s, inbox, view)._replace(x=x, received=received), alg, view)
    with unwritten(alg.mixing, view, "report", given=of_update(update)):
        s, outbox = await ctx.do(reported, alg, s, update, view)
    await ctx.send(view, UP, outbox)
    with ctx.drawing("after mixing", view.round):
        return s.end_round(alg, update, view)


def of_server(inbox: Inbox, view: View) -> Inbox:
    """Return the inbox with only the server's messages, so that a client adopts no other node's model."""
    return Inbox([message for message in inbox if message.src == view.server], inbox.missing, inbox.acknowledgements)


def noticed(alg: Algorithm, s: NodeState, inbox: Inbox, view: View) -> NodeState:
    """Return a client's state after the server's broadcast. It changes only if clients keep an aggregation state."""
    if isinstance(alg.mixing, StatefulAggregation):
        return s._replace(mixing=alg.mixing.notice(s.mixing, inbox, view))
    return s


def reported(alg: Algorithm, s: NodeState, update: Update, view: View) -> tuple[NodeState, Outbox]:
    """Return a client's state after its report to the server, and the message with this report."""
    if isinstance(alg.mixing, StatefulAggregation):
        mixing, outbox, read, unsaid = alg.mixing.report_from(s.mixing, update, s.received, view)
        return s._replace(mixing=mixing, received=s.received._replace(read=read, unsaid=unsaid)), outbox
    return s, alg.mixing.report(update, s.received, view)


def first_state(x: Tensor, alg: Algorithm, view: View) -> NodeState:
    """Return a node's state before its first round."""
    if alg.family != "server":
        mixing = alg.mixing.init(x, view)
    elif view.role is Role.SERVER:
        mixing = alg.mixing.init_server(x, view)
    else:
        mixing = alg.mixing.init_client(x, view) if isinstance(alg.mixing, StatefulAggregation) else None
    return NodeState(view.round, x, alg.start.init(x, view), alg.local.init(x, view), mixing, Received())


def joining_state(initial: Tensor, z: Tensor, weight: int | None, alg: Algorithm, view: View) -> NodeState:
    """Return the new state of a node that lost its state and starts from a neighbor's model `z`, shape (d,).

    Its push-sum weight is `weight`: 0, or 1, which adds to the fleet's sum; None where there are no weights. The copies
    that compressed differences refer to begin at `initial`, where every node began, because receivers know that vector.
    """
    state = first_state(z, alg, view)
    if alg.family == "server":
        return state
    mixing = alg.mixing.init(initial, view)
    if isinstance(alg.mixing, SlowMomentum):
        mixing = mixing._replace(anchor=z)
    if weight != 0:
        return state._replace(mixing=mixing)
    return state._replace(x=z.new_zeros(z.shape), mixing=_without_mass(mixing), z=z)


def _without_mass(mixing: Any) -> object:
    """Return a push-sum state with weight w = 0, also if it is inside the state of a wrapping mixing."""
    if "weight" in mixing._fields:
        return mixing._replace(weight=0.0)
    return mixing._replace(inner=_without_mass(mixing.inner))


FAMILIES: Mapping[FamilyName, Callable[[RoundContext, Algorithm], Awaitable[None]]] = {
    "gossip": gossip,
    "server": server,
    "bilateral": bilateral,
    "overlap": overlap,
}
