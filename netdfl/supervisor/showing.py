"""How a fleet stands, for who looks while it runs: shown on the terminal, written to `fleet.json`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import count

from netdfl.core.errors import RunError
from netdfl.record.status import FleetStatus
from netdfl.supervisor.fleet import Fleet
from netdfl.supervisor.stalls import StallWatch

SHOW_S = 0.25
SHARE = 0.02
"""How much of a run's time may go into showing it, however many nodes it has."""


class Showing:
    """Tells `show` how `fleet` stands, and keeps that beside the record."""

    def __init__(self, fleet: Fleet, stalls: StallWatch, show: Callable[[FleetStatus], None]) -> None:
        """Whom the nodes wait for is known to `stalls`."""
        self._fleet = fleet
        self._stalls = stalls
        self._show = show
        self._again_s = 0.0

    def begin(self) -> None:
        """The fleet starts; of what was before it was told by events."""
        self._again_s = time.monotonic() + SHOW_S

    async def tick(self) -> None:
        """Show the fleet, and every other time, less often of many, write `fleet.json` and flush the record."""
        again = 0
        for turn in count():
            self._look()
            self._show(self._fleet.status)
            await asyncio.sleep(SHOW_S)
            try:
                if turn % 2 and turn >= again:
                    began_s = time.thread_time()
                    self._keep()
                    again = turn + int((time.thread_time() - began_s) / SHARE / SHOW_S)
            except RunError as error:
                self._fleet.broke(error)
            self._fleet.changed.set()

    def sometimes(self) -> None:
        """The same where time is virtual: a few times a second of the real clock, or less often in a large fleet."""
        began_s = time.monotonic()
        if began_s >= self._again_s:
            self._keep()
            self._show(self._fleet.status)
            now_s = time.monotonic()
            self._again_s = now_s + max(SHOW_S, (now_s - began_s) / SHARE)

    def write(self) -> None:
        """What `fleet.json` shows while the run goes on, and at its end. Raises RunError."""
        self._look()
        self._fleet.directory.write("fleet.json", self._fleet.status.to_text())

    def _keep(self) -> None:
        self._fleet.store.flush()
        self.write()

    def _look(self) -> None:
        self._fleet.add_up()
        self._fleet.status.waiting = self._stalls.waiting()
