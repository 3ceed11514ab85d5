"""Nodes that have another clock attend once they know the supervisor's: so no node begins later than the others."""

from __future__ import annotations

from netdfl.core.control import EVALUATOR, AskClock, Hello, Report
from netdfl.core.types import NodeId
from netdfl.host.apart import ASKS
from netdfl.worlds.base import News


class ClockFirst:
    """News of a world, where what a node says first is told once it has asked for the clock often enough."""

    def __init__(self, news: News) -> None:
        """Tell `news`."""
        self._news = news
        self._hellos: dict[NodeId, Hello] = {}
        self.exited, self.came_back = news.exited, news.came_back
        self.refused, self.broke = news.refused, news.broke

    def report(self, node: NodeId, report: Report) -> None:
        """See `News`."""
        if isinstance(report, Hello) and node != EVALUATOR:
            self._hellos[node] = report
            return
        self._news.report(node, report)
        if report == AskClock(ASKS - 1) and node in self._hellos:  # answered before anything that follows the hello
            self._news.report(node, self._hellos.pop(node))
