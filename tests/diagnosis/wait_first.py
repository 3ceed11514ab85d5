"""An algorithm made to stall: each node awaits what a test says before it sends. For planted deadlocks."""

from __future__ import annotations

import ast
from dataclasses import replace

from netdfl.algorithms.base import Algorithm, RoundContext
from netdfl.algorithms.exchange import Exchange
from netdfl.algorithms.undirected import dpsgd
from netdfl.algorithms.wait import WaitPolicy

Asked = dict[int, tuple[tuple[int, ...], int]]
ASKED: Asked = {}


def wait_first(exchange: Exchange, /, *, asks: str = "{}", from_round: int = 1) -> Algorithm:
    """From `from_round` on, a node in `asks` ({node: (sources, need)}) waits for them, then sends; others push."""
    ASKED.clear()
    ASKED.update(ast.literal_eval(asks))
    ASKED[-1] = ((), from_round)
    return replace(dpsgd(exchange), family="wait_first")  # type: ignore[arg-type]


async def wait_first_loop(ctx: RoundContext, alg: Algorithm) -> None:
    s = ctx.begin(alg)
    async for view in ctx.rounds(s.round):
        s, update = await ctx.train(s, alg, view)
        s, outbox = await ctx.do(s.outgoing, alg, update, 0, view)
        node = getattr(ctx, "id", -1)
        if node in ASKED and view.round >= ASKED[-1][1]:
            sources, need = ASKED[node]
            await ctx.gather(view, 0, WaitPolicy(need=need, deadline_ns=None), sources)
        await ctx.send(view, 0, outbox)
        s = s.end_round(alg, update, view)
        await ctx.end_round(s, view)
