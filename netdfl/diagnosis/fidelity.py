"""The fidelity of an emulation above a real transport: messages' scheduled and achieved delays, and event loop lag.

Nodes measure while they run, and each records one event (`fidelity`). The supervisor's side reads these events and
judges them by the scenario's bound. Only links that delayed messages are judged.

Relies on: clocks that agree: the times in a link header are of the sender's clock, the arrival is of the receiver's.

Why: Links above a real transport can miss their own schedule on a busy machine, and nothing else would show it: delays
would look like the scenario's. So a run measures itself, and a run that missed its bound is `unknown` instead of
passed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from netdfl.core.clock import NS_PER_S, Clock
from netdfl.core.types import Json, NodeId, Scalar
from netdfl.record.run import Run

EVENT = "fidelity"
MOST_ERRORS = 1 << 14
"""The most delay errors of a link that are kept for their median; of more, every second, fourth, ... error is kept."""
_SAMPLE_NS = 50_000_000
_SHOWN = 20


@dataclass(slots=True)
class LinkTimes:
    """Sums and samples of one incoming link's messages: their bytes, their scheduled delays and the achieved ones.

    Attributes:
        messages: the number of messages.
        nbytes: the bytes of all messages.
        first_nbytes: the bytes of the first message, which rates leave out.
        scheduled_ns: the sum of the scheduled delays.
        achieved_ns: the sum of the achieved delays.
        errors_ns: how late each message came or, if there were many, one message in `every`.
        every: a power of two.
        worst_ns: how late the latest of all messages came.
        scheduled_span: the first and the last scheduled arrival; None: no message came.
        achieved_span: the first and the last arrival; None: no message came.
    """

    messages: int = 0
    nbytes: int = 0
    first_nbytes: int = 0
    scheduled_ns: int = 0
    achieved_ns: int = 0
    errors_ns: list[int] = field(default_factory=list)
    every: int = 1
    worst_ns: int | None = None
    scheduled_span: tuple[int, int] | None = None
    achieved_span: tuple[int, int] | None = None

    def add(self, nbytes: int, sent_ns: int, due_ns: int, at_ns: int) -> None:
        """Add a message that arrived at `at_ns` and was due at `due_ns`."""
        if not self.messages:
            self.first_nbytes = nbytes
        self.messages += 1
        self.nbytes += nbytes
        self.scheduled_ns += due_ns - sent_ns
        self.achieved_ns += at_ns - sent_ns
        self._add_error(at_ns - due_ns)
        self.scheduled_span = self._widened(self.scheduled_span, due_ns)
        self.achieved_span = self._widened(self.achieved_span, at_ns)

    def _add_error(self, error_ns: int) -> None:
        self.worst_ns = error_ns if self.worst_ns is None else max(self.worst_ns, error_ns)
        if self.messages % self.every:
            return
        self.errors_ns.append(error_ns)
        if len(self.errors_ns) > MOST_ERRORS:
            self.errors_ns, self.every = self.errors_ns[1::2], 2 * self.every

    def to_json(self) -> dict[str, Scalar]:
        """Return mean delays in seconds, and rates in bits per second between the first and the last arrival."""
        return {
            "messages": self.messages,
            "mean_bytes": self.nbytes / self.messages,
            "scheduled_delay_s": self.scheduled_ns / self.messages / NS_PER_S,
            "achieved_delay_s": self.achieved_ns / self.messages / NS_PER_S,
            "median_error_s": median(self.errors_ns) / NS_PER_S,
            "worst_error_s": (self.worst_ns or 0) / NS_PER_S,
            "scheduled_rate_bps": self._rate(self.scheduled_span),
            "achieved_rate_bps": self._rate(self.achieved_span),
        }

    @staticmethod
    def _widened(span: tuple[int, int] | None, at_ns: int) -> tuple[int, int]:
        return (at_ns, at_ns) if span is None else (min(span[0], at_ns), max(span[1], at_ns))

    def _rate(self, span: tuple[int, int] | None) -> float | None:
        if span is None or span[1] == span[0]:
            return None
        return 8 * (self.nbytes - self.first_nbytes) * NS_PER_S / (span[1] - span[0])


FEWEST = 10


@dataclass
class Meter:
    """The measurements of one node: the delays of incoming links, and the lag of its event loop."""

    links: dict[NodeId, LinkTimes] = field(default_factory=dict)
    lags_ns: list[int] = field(default_factory=list)

    def arrived(self, src: NodeId, nbytes: int, sent_ns: int, due_ns: int, at_ns: int) -> None:
        """Add a message of `src` with its times of sending, scheduled and actual arrival, unless no link delayed it."""
        if due_ns > sent_ns:
            self.links.setdefault(src, LinkTimes()).add(nbytes, sent_ns, due_ns, at_ns)

    async def watch_loop(self, clock: Clock) -> None:
        """Measure repeatedly how late the event loop wakes up from sleep, until cancelled."""
        while True:
            before = clock.now_ns()
            await asyncio.sleep(_SAMPLE_NS / NS_PER_S)
            self.lags_ns.append(max(0, clock.now_ns() - before - _SAMPLE_NS))

    def to_json(self) -> dict[str, Scalar]:
        """Return the node's measurements, as the details of its event `fidelity` in the record."""
        lags = sorted(self.lags_ns) or [0]
        lag = {"p50": lags[len(lags) // 2], "p99": lags[len(lags) * 99 // 100], "max": lags[-1]}
        return {
            "links": {str(src): times.to_json() for src, times in sorted(self.links.items())},
            "loop_lag_s": {name: value / NS_PER_S for name, value in lag.items()},
        }


class FidelityVerdict(NamedTuple):
    """The fidelity of an emulation: a `summary` for `result.json`, and a sentence `missed`.

    The sentence is about links that exceed the bound; it is empty if there are none.
    """

    summary: Json | None
    missed: str


class NetworkDelays:
    """The delays that the real network between machines adds to the emulated ones, as measured before the run."""

    def __init__(self, links: Json) -> None:
        """Read the measurements in `links`, an entry of the result; if all nodes are on one machine, delays are 0."""
        self._where = {node: name for name, nodes in links.get("machines", {}).items() for node in nodes}
        self._told = {(way["src"], way["dst"]): way for way in links.get("network", ())}

    def adds_s(self, src: NodeId, dst: NodeId, nbytes: float) -> float:
        """Return the network's delay in seconds: half a round trip, plus the bytes at the rate; 0 on one machine."""
        told = self._told.get((self._where.get(src, ""), self._where.get(dst, "")), {})
        trip, rate = told.get("round_trip_s"), told.get("rate_bps")
        at_rate = 8 * nbytes / rate if isinstance(rate, float | int) and rate > 0 else 0.0
        return trip / 2 + at_rate if isinstance(trip, float | int) else 0.0

    def name(self, src: NodeId, dst: NodeId) -> str:
        """Return the names of the machines at both ends of a link, as text."""
        return f"{self._where[src]} and {self._where[dst]}"


_ON_ONE = NetworkDelays({})


def judge_fidelity(run: Run, *, relative: float, slack_ns: int, ways: NetworkDelays = _ON_ONE) -> FidelityVerdict:
    """Judge the emulation delays that the nodes of `run` measured.

    Half of a link's messages may be late by any time (a first one opens a connection). The others may be late by
    `relative` times the mean scheduled delay, or by `slack_ns`, whichever is more. A link with fewer than `FEWEST`
    messages is not judged: it was up while the fleet started, and not for long after.

    Delays of the network between machines count as late, because the scenario does not contain them. `ways` has these
    delays, and the verdict's sentence says if they are the cause. The summary holds the bound, the worst links, and the
    loop lag of each node; it is None without events.
    """
    rows = run.rows("SELECT node, details FROM events WHERE kind = ? ORDER BY at_s, node", [EVENT])
    nodes = {node: json.loads(details) for node, details in rows}
    if not nodes:
        return FidelityVerdict(None, "")
    links = [
        {"src": int(src), "dst": dst, **times, "network_s": ways.adds_s(int(src), dst, times.get("mean_bytes", 0))}
        for dst, found in nodes.items()
        for src, times in found["links"].items()
    ]
    links.sort(key=itemgetter("median_error_s"), reverse=True)
    bound = {"relative": relative, "slack_s": slack_ns / NS_PER_S}
    judged = [link for link in links if link["messages"] >= FEWEST]
    missed = [
        link for link in judged if link["median_error_s"] > max(relative * link["scheduled_delay_s"], bound["slack_s"])
    ]
    summary = {
        "bound": bound,
        "links_judged": len(judged),
        "links_missed": len(missed),
        "links": links[:_SHOWN],
        "loop_lag_s": {str(node): found["loop_lag_s"] for node, found in sorted(nodes.items())},
    }
    return FidelityVerdict(summary, _sentence(missed, len(judged), bound, ways) if missed else "")


MOST_LATE_NS = 16_777_216
"""If one packet in a hundred is later than this many ns, or waits this long in its device, the schedule was missed.

It is a power of two, as the counters' steps are.
"""
MOST_UNREAD = 0.001
"""If the kernel drops more than this share of packets unread, the schedule was missed: scenarios have no such loss."""


def judge_packets(counts: Json) -> str:
    """Return a sentence if a packet forwarder missed its schedule, according to its `counts`; else empty.

    A packet is late if it left later than due, or waited in its sender's device before it was read.
    """
    late_ns = counts.get("late_ns", {}).get("99", 0)
    waited_ns = counts.get("waited_ns", {}).get("99", 0)
    unread, sent = counts.get("unread", 0), counts.get("packets", {}).get("sent", 0)
    missed = []
    if late_ns > MOST_LATE_NS:
        missed.append(f"one packet in a hundred came more than {late_ns / 2e6:.0f} ms late")
    if waited_ns > MOST_LATE_NS:
        missed.append(f"one in a hundred waited more than {waited_ns / 2e6:.0f} ms in its device before it was read")
    if unread > MOST_UNREAD * (sent + unread):
        missed.append(f"the kernel dropped {unread:,} of {sent + unread:,} packets because nobody read them in time")
    if not missed:
        return ""
    return f"{'; '.join(missed)}: the machine is too busy to carry the fleet's packets; use fewer nodes or lower rates"


def _sentence(missed: list[dict[str, Any]], judged: int, bound: Mapping[str, float], ways: NetworkDelays) -> str:
    worst = missed[0]
    remedy = "use fewer nodes or more cores, or widen world.fidelity"
    if worst["network_s"] > worst["median_error_s"] / 2:
        remedy = (
            f"the network between {ways.name(worst['src'], worst['dst'])} takes {worst['network_s'] * 1e3:.1f} ms of "
            "it by itself: place these nodes on one machine (world.sites), schedule longer delays, or widen "
            "world.fidelity"
        )
    return (
        f"the emulation missed its bound on {len(missed)} of {judged} links: half of the messages of "
        f"{worst['src']}->{worst['dst']} came {worst['median_error_s'] * 1e3:.1f} ms late or more, with "
        f"{worst['scheduled_delay_s'] * 1e3:.1f} ms scheduled in the mean "
        f"(allowed: {bound['relative']:.0%} or {bound['slack_s'] * 1e3:g} ms); "
        f"{remedy}"
    )
