"""Traffic over core links, for the link engine, for nodes in virtual time, and for real nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from netdfl.core.rng import Streams
from netdfl.links.channel import Links
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.events import CompiledEvent
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LinksSpec
from netdfl.underlay.rerouting import rerouted
from netdfl.underlay.shared import SharedCore
from netdfl.underlay.told import CoreDivision, ToldCore
from netdfl.underlay.underlay import Underlay
from tests.underlay.sites import MB, SITES, S, arrivals, fleet

STREAMS = Streams(0)


@dataclass(frozen=True)
class CoreTraffic:
    """Nodes on the four sites, and messages (at in s, src, dst, bytes), named by their places."""

    site_of: Mapping[int, str]
    messages: Sequence[tuple[float, int, int, int]]
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    entries: Sequence[Mapping[str, Any]] = ()
    reroute_s: float | None = None

    @property
    def events(self) -> list[CompiledEvent]:
        underlay = self._underlay
        facts = Facts(len(self.site_of), STREAMS, core=underlay)
        return rerouted(compile_events(self.entries, facts), underlay)

    @property
    def _underlay(self) -> Underlay:
        underlay = fleet(self.site_of, None if self.reroute_s is None else round(self.reroute_s * S))
        underlay.check_reachable()  # a loaded scenario's routes are found before its nodes begin
        return underlay

    def links(self) -> Links:
        """A node's copy of all links."""
        core, events = ToldCore(self._underlay, STREAMS), self.events
        return Links(LinksSpec(self.rules, {}, len(self.site_of)), STREAMS, events, halves=True, core=core)

    def division(self) -> CoreDivision:
        """The supervisor's part."""
        return CoreDivision(SharedCore(self._underlay, STREAMS), self.events, len(self.site_of))

    def engine(self) -> dict[int, int | None]:
        """When each message arrives in the simulated world, in ns; None for one that is lost."""
        found = arrivals(self._underlay, self.messages, self.rules, self.entries)
        return {n: at if isinstance(at, int) else None for n, at in found.items()}

    def sent_at(self, times: Mapping[int, float]) -> CoreTraffic:
        """The same traffic, sent at other times."""
        return replace(self, messages=[(times[n], *rest) for n, (_, *rest) in enumerate(self.messages)])


FOUR = {node: SITES[node] for node in range(4)}
EIGHT = {node: SITES[node // 2] for node in range(8)}
SIXTEEN = {node: SITES[node // 4] for node in range(16)}
ACCESS = {"default": {"uplink": "20Mbit", "downlink": "20Mbit", "latency": "3ms"}}


def in_waves(apart_s: float, nbytes: int = 300_000) -> CoreTraffic:
    """Three messages of each of 16 nodes on 4 sites, in five waves."""
    sent = [(apart_s * (n % 5), n, (n + step) % 16, nbytes) for n in range(16) for step in (1, 4, 7)]
    return CoreTraffic(SIXTEEN, sent, ACCESS)


CORE_TRAFFIC = {
    "a core link with cross traffic": CoreTraffic(
        EIGHT,
        [(0, 0, 4, 2 * MB), (0.1, 1, 5, 2 * MB), (0.5, 2, 4, MB), (1.0, 3, 5, MB), (1.2, 3, 6, MB), (2.5, 4, 0, MB)],
        ACCESS,
    ),
    "16 nodes on 4 sites": in_waves(0.1, 1_200_000),
    "core links that change, lose and are cut": CoreTraffic(
        EIGHT,
        [(0.01 * n, n % 4, 4 + n % 4, 400_000) for n in range(8)] + [(1.8, 0, 4, MB), (1.9, 2, 5, MB), (4.5, 0, 4, MB)],
        ACCESS,
        [
            {"at": "500ms", "for": "1s", "core": "zurich->milan", "rate": "x0.5", "latency": "30ms"},
            {"at": "2s", "for": "1500ms", "cut": "zurich->milan", "mode": "down_hold"},
            {"at": "4400ms", "core": "paris--zurich", "loss": 1},
        ],
    ),
    "a cut that messages get around": CoreTraffic(
        EIGHT,
        [(0, 0, 4, MB), (0, 2, 5, MB), (0.3, 1, 4, 2 * MB), (2.6, 1, 5, MB)],
        ACCESS,
        [{"at": "500ms", "for": "2s", "cut": "zurich->milan", "mode": "down_hold"}],
        reroute_s=0.5,
    ),
}
