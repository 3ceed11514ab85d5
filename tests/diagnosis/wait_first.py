"""An algorithm made to stall: each node awaits what a test says before it sends. For planted deadlocks."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, fields

from netdfl.algorithms.base import Algorithm, Entry, RoundContext
from netdfl.algorithms.exchange import Exchange, WaitPolicy
from netdfl.algorithms.undirected import dpsgd


@dataclass(frozen=True, kw_only=True)
class WaitFirst(Algorithm):
    """From `from_round` on, a node in `asks` ({node: (sources, need)}) waits for them, then sends; others push."""

    asks: Mapping[int, tuple[tuple[int, ...], int]]
    from_round: int


def build(exchange: Exchange, /, *, asks: str = "{}", from_round: int = 1) -> Algorithm:
    """Gossip whose nodes wait first; see `WaitFirst`."""
    gossip = dpsgd(exchange)
    parts = {field.name: getattr(gossip, field.name) for field in fields(gossip)} | {"family": "wait_first"}
    return WaitFirst(**parts, asks=ast.literal_eval(asks), from_round=from_round)


wait_first = Entry(
    build=build,
    family="wait_first",  # type: ignore[arg-type]
    needs=frozenset({"doubly", "row"}),
    source="tests",
)


async def wait_first_loop(ctx: RoundContext, alg: WaitFirst) -> None:
    s = ctx.begin(alg)
    async for view in ctx.rounds(s.round):
        s, update = await ctx.train(s, alg, view)
        s, outbox = await ctx.do(s.outgoing, alg, update, 0, view)
        node = getattr(ctx, "id", -1)
        if node in alg.asks and view.round >= alg.from_round:
            sources, need = alg.asks[node]
            await ctx.gather(view, 0, WaitPolicy(need=need, deadline_ns=None), sources)
        await ctx.send(view, 0, outbox)
        s = s.end_round(alg, update, view)
        await ctx.end_round(s, view)
