"""A link engine that can process arrivals and departures of one instant one by one, in an order that its owner chooses.

Relies on: `LinkEngine`, of which only the choice of the next arrival or departure is replaced.

Why: A run has one order of equal instants, by keys. A proof that holds for every order needs the others too, so the
order comes from outside. It is an engine of its own, as the usual one hands over an instant as one batch, which is much
of its speed.
"""

from __future__ import annotations

from netdfl.core.types import Edge
from netdfl.links.engine import Arrival, E, LinkEngine, T, by_order_key


class OneByOneEngine(LinkEngine[E, T]):
    """A `LinkEngine` that can process a single arrival or departure of an instant."""

    def due(self, now_ns: int) -> list[E]:
        """Return the edges of arrivals and departures due at `now_ns`, in the order in which `LinkEngine` handles them.

        An edge occurs once for each of its arrivals and departures.
        """
        entries = self._calendar.instants.get(now_ns, ())
        live = [entry for entry in entries if not self._is_void(now_ns, entry)]
        return [entry[1] for entry in by_order_key(live)]

    def step_one(self, edge: Edge, now_ns: int) -> None:
        """Process the arrival or departure on `edge` that was sent first among the ones due at `now_ns`, if any."""
        entries = self._calendar.instants.get(now_ns, [])
        found = next((entry for entry in entries if self._is_next(entry, edge, now_ns)), None)
        if found is not None:
            entries.remove(found)
            self._in_instant = True
            self._go_on(found, now_ns)
            self._in_instant = False

    def _is_next(self, entry: Arrival[E, T], edge: Edge, now_ns: int) -> bool:
        return entry[1].edge == edge and not self._is_void(now_ns, entry)
