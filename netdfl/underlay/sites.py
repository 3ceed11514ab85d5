"""Sites and the core links that join them: the network below the links of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdfl.links.selectors import nearest

BOTH, ONE_WAY = "--", "->"


@dataclass(frozen=True, slots=True)
class CoreFigures:
    """The values of a core link.

    Attributes:
        latency_ns: its delay.
        rate_bps: its rate in bit/s; None: unlimited.
        loss: the share of messages that it loses.
        queue_bytes: the most bytes that wait before it; None: unlimited.
    """

    latency_ns: int = 0
    rate_bps: float | None = None
    loss: float = 0.0
    queue_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CoreLink:
    """One direction of a core link, from site `src` to site `dst`. The other direction has a rate of its own."""

    src: str
    dst: str
    figures: CoreFigures

    @property
    def name(self) -> str:
        """The name of this direction: `paris->zurich`."""
        return f"{self.src}{ONE_WAY}{self.dst}"


def ends_in(name: str) -> tuple[str, str, bool]:
    """Return the two sites in the name of a core link, and whether it means both directions.

    Raises:
        ValueError: The text names no core link.
    """
    arrow = ONE_WAY if ONE_WAY in name else BOTH
    src, _, dst = (part.strip() for part in name.partition(arrow))
    if not src or not dst:
        raise ValueError(f"{name!r} names no core link; write paris--zurich, or paris->zurich for one direction")
    if src == dst:
        raise ValueError(f"{name!r} is a core link from a site to itself; name two sites")
    return src, dst, arrow == BOTH


class CoreNetwork:
    """All core links of a scenario.

    Attributes:
        sites: the sites with a core link, in the order in which the links name them.
        links: the directions of the core links, by their two sites.
    """

    def __init__(self, figures: Mapping[str, CoreFigures]) -> None:
        """Begin with the values (`figures`) of each core link, by its name.

        Raises ValueError for a name that can't be read, or a link named twice.
        """
        self.links: dict[tuple[str, str], CoreLink] = {}
        for name, each in figures.items():
            src, dst, both = ends_in(name)
            for ends in ((src, dst), (dst, src)) if both else ((src, dst),):
                if ends in self.links:
                    raise ValueError(f"the core link {ends[0]}->{ends[1]} is named twice; leave one of the entries out")
                self.links[ends] = CoreLink(*ends, each)
        self.sites = tuple(dict.fromkeys(site for ends in self.links for site in ends))

    def named(self, text: str) -> tuple[CoreLink, ...]:
        """Return the directions that `paris--zurich` (both) or `paris->zurich` names.

        Raises ValueError for an unknown link.
        """
        return tuple(self._named(text))

    def _named(self, text: str) -> Iterator[CoreLink]:
        src, dst, both = ends_in(text)
        for ends in ((src, dst), (dst, src)) if both else ((src, dst),):
            if ends not in self.links:
                known = sorted({_both(link, self.links) for link in self.links.values()})
                raise ValueError(f"there is no core link {text!r}; {nearest(text, known)}")
            yield self.links[ends]


def _both(link: CoreLink, links: Mapping[tuple[str, str], CoreLink]) -> str:
    """Return the name of a core link: `paris--zurich`; of one with a single direction, `paris->zurich`."""
    if (link.dst, link.src) not in links:
        return link.name
    return BOTH.join(sorted((link.src, link.dst)))
