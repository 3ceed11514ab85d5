"""Sites and the core links that join them: the network below the links of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netdfl.links.selectors import nearest

BOTH, ONE_WAY = "--", "->"


@dataclass(frozen=True, slots=True)
class CoreFigures:
    """The figures of a core link: its delay, its rate (None: unlimited), its loss, and the bound of its queue."""

    latency_ns: int = 0
    rate_bps: float | None = None
    loss: float = 0.0
    queue_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CoreLink:
    """One direction of a core link. What goes the other way has a capacity of its own."""

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
    """All core links, by their ends.

    Attributes:
        sites: the sites with a core link, in the order in which the links name them.
        links: the directions of the core links.
    """

    def __init__(self, figures: Mapping[str, CoreFigures]) -> None:
        """Read core links by name. Raises ValueError for a name without a meaning, and for one named twice."""
        self.links: dict[tuple[str, str], CoreLink] = {}
        for name, each in figures.items():
            src, dst, both = ends_in(name)
            for ends in ((src, dst), (dst, src)) if both else ((src, dst),):
                if ends in self.links:
                    raise ValueError(f"the core link {ends[0]}->{ends[1]} is named twice; leave one of the entries out")
                self.links[ends] = CoreLink(*ends, each)
        self.sites = tuple(dict.fromkeys(site for ends in self.links for site in ends))

    def named(self, text: str) -> tuple[CoreLink, ...]:
        """Return the directions that `paris--zurich` (both) or `paris->zurich` names. Raises ValueError for others."""
        return tuple(self._named(text))

    def _named(self, text: str) -> Iterator[CoreLink]:
        src, dst, both = ends_in(text)
        for ends in ((src, dst), (dst, src)) if both else ((src, dst),):
            if ends not in self.links:
                known = sorted({_both(link, self.links) for link in self.links.values()})
                raise ValueError(f"there is no core link {text!r}; {nearest(text, known)}")
            yield self.links[ends]


def _both(link: CoreLink, links: Mapping[tuple[str, str], CoreLink]) -> str:
    """Return the name of both directions, where there are both."""
    if (link.dst, link.src) not in links:
        return link.name
    return BOTH.join(sorted((link.src, link.dst)))
