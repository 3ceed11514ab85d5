"""The family in which messages travel while nodes compute: send in round t, use messages of earlier rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from netdfl.algorithms.base import Algorithm, NodeState, RoundContext
from netdfl.algorithms.exchange import AnySgd, Exchange, Sgd
from netdfl.algorithms.late import parts
from netdfl.core.types import Inbox, Outbox, View
from netdfl.core.units import PositiveInt
from netdfl.mixing.base import has_mass

if TYPE_CHECKING:
    from netdfl.training.base import LocalSolver


async def overlap(ctx: RoundContext, alg: Algorithm) -> None:
    """Run rounds of overlapping push-sum: send shares, train while they travel, add the shares that arrived."""
    s = ctx.begin(alg)
    async for view in ctx.rounds(s.round):
        began, early = s, alg.mixing.before_training
        if early:
            s = await _give(ctx, alg, s, view)
        s, update = await ctx.train(s, alg, view)
        s = s._replace(x=update.x)
        if not early:
            s = await _give(ctx, alg, s, view)
        inbox = await ctx.collect(view, alg.wait, alg.mixing.lag)
        s = await ctx.do(taken, alg, s, inbox, view)
        with ctx.drawing("after mixing", view.round):
            s = s._replace(x=began.x).end_round(alg, update._replace(x=s.x), view)
        await ctx.end_round(s, view)


async def _give(ctx: RoundContext, alg: Algorithm, s: NodeState, view: View) -> NodeState:
    s, outbox = await ctx.do(given, alg, s, view)
    await ctx.send(view, 0, outbox)
    return s


def given(alg: Algorithm, s: NodeState, view: View) -> tuple[NodeState, Outbox]:
    """Return a node's state without the shares of vector and weight that its neighbors get, and messages with these."""
    mixing, x, outbox = alg.mixing.give(s.mixing, s.x, view)
    z = None if has_mass(alg.mixing.weight(mixing)) else s.model(alg)
    return s._replace(mixing=mixing, x=x, z=z), outbox


def taken(alg: Algorithm, s: NodeState, inbox: Inbox, view: View) -> NodeState:
    """Return a node's state with the received push-sum shares added to its vector and weight."""
    mixing, x = alg.mixing.take(s.mixing, s.x, inbox, view)
    return s._replace(mixing=mixing, x=x)


def overlap_sgp(
    exchange: Exchange, /, *, tau: PositiveInt = 1, sgd: AnySgd = AnySgd(local_epochs=1, local_steps=1)
) -> Algorithm:
    """Overlap-SGP: shares leave before the gradient step and travel during it.

    x_i+ = sum_j P_ij x_j - lr g_i(x_i / w_i), w_i+ = sum_j P_ij w_j for `tau` 1; a share may come up to
    tau - 1 rounds later and is added then. Sends d + 1 numbers to each out-neighbor, keeps w. The sum
    of the nodes' mass and the mass in flight is conserved. Source: Assran et al. 2019.
    """
    return _overlapping(exchange, parts.local_sgd(sgd), before_training=True, lag=tau - 1)


def asyng(
    exchange: Exchange, /, *, tau: PositiveInt | None = 2, sgd: Sgd = Sgd(lr=0.02, local_epochs=1, clip_norm=1.0)
) -> Algorithm:
    """AsyNG: all of a round's gradients at one z = x / w, then push-sum with the shares that have arrived so far.

    x_i <- x_i - lr sum_k g(z_i; xi_k); then P_ji x_i and P_ji w_i leave for every out-neighbor j of the round,
    x_i <- P_ii x_i and w_i <- P_ii w_i, and the arrived shares are added to both, up to tau - 1 rounds late;
    with `tau` null no node ever waits, and the w of a fast node goes to 0. Sends d + 1 numbers to each
    out-neighbor, keeps w. Source: Chen et al. 2023, as DFedSGPSM describes it; its own priorities among
    neighbors are not in it.
    """
    lag = None if tau is None else tau - 1
    return _overlapping(exchange, parts.FixedPoint(parts.local_sgd(sgd)), before_training=False, lag=lag)


def _overlapping(exchange: Exchange, local: LocalSolver, *, before_training: bool, lag: int | None) -> Algorithm:
    if exchange.compressor is not None:
        raise ValueError("shares that overlap with training travel whole; remove compression, or use sgp")
    mixing = parts.OverlappedPushSum(before_training=before_training, lag=lag)
    return Algorithm(family="overlap", start=parts.PlainStart(), local=local, mixing=mixing, wait=exchange.wait)
