"""The reporting of a fleet's status while it runs, to the terminal and to `fleet.json`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from itertools import count

from netdfl.core.control import EVALUATOR
from netdfl.core.errors import RunError
from netdfl.record.resources import ResourceLog, parent_of
from netdfl.record.status import FleetStatus
from netdfl.supervisor.fleet import FleetState
from netdfl.supervisor.stalls import StallWatch

SHOW_S = 0.25
SHARE = 0.02
"""The largest share of a run's time that goes into showing its status, whatever the number of nodes."""


class StatusReporter:
    """A reporter that calls `show` with the status of `fleet`, and writes the status to `fleet.json`."""

    def __init__(self, fleet: FleetState, stalls: StallWatch, show: Callable[[FleetStatus], None]) -> None:
        """Report on `fleet` by calling `show` with its status, which includes the waits that `stalls` knows."""
        self._fleet = fleet
        self._stalls = stalls
        self._show = show
        self._again_s = 0.0
        self._resources: ResourceLog | None = None

    def begin(self) -> None:
        """Begin to report, when the fleet starts; earlier events are in the record."""
        self._again_s = time.monotonic() + SHOW_S
        if self._fleet.directory.kept:
            self._resources = ResourceLog(
                self._fleet.directory.path, "supervisor", "supervisor", self._real_s, others=self._beside
            )

    async def tick(self) -> None:
        """Show the status regularly until cancelled; less often, write `fleet.json` and flush the record."""
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
        """Show and write the status a few times per second of real time, in a world of virtual time.

        In a large fleet this happens less often.
        """
        began_s = time.monotonic()
        if began_s >= self._again_s:
            self._keep()
            self._show(self._fleet.status)
            now_s = time.monotonic()
            self._again_s = now_s + max(SHOW_S, (now_s - began_s) / SHARE)

    def write(self) -> None:
        """Write `fleet.json`, and a last sample of resources, at the end of the run. Raises RunError."""
        self._write()
        if self._resources is not None:
            self._resources.close()

    def _keep(self) -> None:
        self._fleet.store.flush()
        self._write()
        if self._resources is not None:
            self._resources.sometimes()

    def _write(self) -> None:
        self._look()
        self._fleet.directory.write("fleet.json", self._fleet.status.to_text())

    def _real_s(self) -> float:
        """Return the seconds of real time since the fleet's start, as of the last update of the status."""
        return self._fleet.status.wall_s

    def _beside(self) -> dict[str, int]:
        """Return the ids of processes without nodes besides the supervisor: the evaluator and its fork server."""
        hello = self._fleet.hellos.get(EVALUATOR)
        if hello is None or hello.pid in (0, os.getpid()):
            return {}
        forks = parent_of(hello.pid)
        return {"evaluator": hello.pid} | ({"fork server": forks} if forks not in (None, 1, os.getpid()) else {})

    def _look(self) -> None:
        self._fleet.add_up()
        self._fleet.status.waiting = self._stalls.waiting()
