"""A link engine whose entries of one instant can be taken one by one, in an order that its owner chooses.

Relies on: `LinkEngine`, of which only the choice of the next entry is replaced; what an entry does is the same.

Why: A run has one order of equal instants, by keys. A proof asks for the others, so the order comes from outside. It is
an engine of its own, as the usual one hands over an instant as one batch, which is much of its speed.
"""

from __future__ import annotations

from netdfl.core.types import Edge
from netdfl.links.engine import Arrival, E, LinkEngine, T, by_order_key


class OneByOneEngine(LinkEngine[E, T]):
    """A `LinkEngine` that can process a single entry of an instant."""

    def due(self, now_ns: int) -> list[E]:
        """Return the edges of the entries due at `now_ns`, in the usual order; an edge appears once for each entry."""
        entries = self._calendar.instants.get(now_ns, ())
        live = [entry for entry in entries if not self._is_void(now_ns, entry)]
        return [entry[1] for entry in by_order_key(live)]

    def step_one(self, edge: Edge, now_ns: int) -> None:
        """Process the entry of `edge` that was sent first among those due at `now_ns`, if there is one."""
        entries = self._calendar.instants.get(now_ns, [])
        found = next((entry for entry in entries if self._is_next(entry, edge, now_ns)), None)
        if found is not None:
            entries.remove(found)
            self._in_instant = True
            self._go_on(found, now_ns)
            self._in_instant = False

    def _is_next(self, entry: Arrival[E, T], edge: Edge, now_ns: int) -> bool:
        return entry[1].edge == edge and not self._is_void(now_ns, entry)
