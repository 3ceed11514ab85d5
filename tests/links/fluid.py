"""Max-min fair sharing written from its definition, in exact fractions: what the link engine is held against.

It knows no engine, no stage and no heap: at every instant it finds the rates of all transfers under way from nothing,
by letting all grow alike until a link is full, checks that they are max-min fair, and goes on to the next instant at
which anything begins, ends or changes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Link = Hashable


@dataclass(eq=False)
class Transfer:
    """Bytes that `flow` has to send from `at` on (seconds), over `links`; `lost` ones cross the first link alone."""

    name: Hashable
    flow: Hashable
    at: Fraction
    nbytes: int
    links: tuple[Link, ...]
    left: Fraction = field(init=False)

    def __post_init__(self) -> None:
        self.left = Fraction(8 * self.nbytes)


@dataclass(frozen=True)
class Change:
    """At `at`, a link gets another rate, or a flow is `held`, goes on, or loses all that it has (`reset`)."""

    at: Fraction
    what: Hashable
    to: Fraction | str


def max_min(crossing: Mapping[Hashable, Sequence[Link]], rates: Mapping[Link, Fraction]) -> dict[Hashable, Fraction]:
    """The rate of each flow over links of the given rates."""
    found = dict.fromkeys(crossing, Fraction(0))
    growing = set(crossing)
    while growing:
        room = {
            link: rate - sum(found[f] for f, over in crossing.items() if link in over) for link, rate in rates.items()
        }
        users = {link: sum(link in crossing[f] for f in growing) for link in rates}
        step = min(room[link] / users[link] for link in rates if users[link])
        for f in growing:
            found[f] += step
        full = {link for link in rates if users[link] and room[link] == step * users[link]}
        growing = {f for f in growing if not full & set(crossing[f])}
    _check(found, crossing, rates)
    return found


def _check(
    found: Mapping[Hashable, Fraction], crossing: Mapping[Hashable, Sequence[Link]], rates: Mapping[Link, Fraction]
) -> None:
    """Each flow has a bottleneck: a link that is full, on which no other flow is faster."""
    for f, over in crossing.items():
        on = {link: [found[g] for g in crossing if link in crossing[g]] for link in over}
        assert all(sum(there) <= rates[link] for link, there in on.items())
        assert any(sum(there) == rates[link] and found[f] == max(there) for link, there in on.items())


def play(
    transfers: Sequence[Transfer], rates: Mapping[Link, Fraction], changes: Sequence[Change] = ()
) -> dict[Hashable, Fraction | None]:
    """When the last byte of each transfer has passed, in seconds; None for those of a flow that was reset."""
    rates, coming, changes = dict(rates), sorted(transfers, key=lambda t: t.at), sorted(changes, key=lambda c: c.at)
    queues: dict[Hashable, list[Transfer]] = {}
    held: set[Hashable] = set()
    ends: dict[Hashable, Fraction | None] = {}
    now = Fraction(0)
    while coming or any(queues.values()):
        going = {flow: queue[0] for flow, queue in queues.items() if queue and flow not in held}
        speed = max_min({flow: each.links for flow, each in going.items()}, rates) if going else {}
        moments = [now + each.left / speed[flow] for flow, each in going.items() if speed[flow]]
        moments += [each.at for each in coming[:1]] + [change.at for change in changes[:1]]
        then = min(moments)
        for flow, each in going.items():
            each.left -= speed[flow] * (then - now)
        now = then
        for flow, each in going.items():
            if not each.left:
                ends[each.name] = now
                queues[flow].pop(0)
        while changes and changes[0].at == now:
            change = changes.pop(0)
            if isinstance(change.to, Fraction):
                rates[change.what] = change.to
            elif change.to == "held":
                held.add(change.what)
            else:
                held.discard(change.what)
                if change.to == "reset":
                    ends |= dict.fromkeys([each.name for each in queues.pop(change.what, [])])
        while coming and coming[0].at == now:
            queues.setdefault(coming[0].flow, []).append(coming.pop(0))
    return ends
