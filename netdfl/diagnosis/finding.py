"""Findings: the results of a diagnosis, each a stall with its cause, the nodes that wait first, reasons and proof.

The `stalls` folder of a run holds each finding with the snapshot that proves it and the call stacks of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from netdfl.core.clock import NS_PER_S
from netdfl.core.errors import RunError
from netdfl.core.types import Edge, Json, NodeId
from netdfl.diagnosis import words
from netdfl.diagnosis.sentences import say
from netdfl.diagnosis.snapshot import Snapshot
from netdfl.diagnosis.why import Grounds
from netdfl.record.directory import RunDirectory
from netdfl.record.kept_stalls import FOLDER, MOST_KEPT
from netdfl.record.plain_json import dump_by_line

DEADLINE = "wait.deadline: auto"
"""The setting of a scenario by which no wait lasts forever."""


class Cause(StrEnum):
    """The cause of a stall. In a `DEADLOCK` nodes wait for each other, or for messages that no node will send."""

    DEADLOCK = "deadlock"
    LOST_MESSAGE = "lost_message"
    UNREACHABLE = "unreachable"
    STRAGGLER = "straggler"
    LIVELOCK = "livelock"
    FLOW_CONTROL = "flow_control"
    BLOCKED_LOOP = "blocked_loop"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One diagnosed stall.

    Attributes:
        cause: the cause of the stall.
        roots: the nodes that wait first: they wait for `culprits`, and other nodes for them.
        grounds: the waits and their reasons, from which the stall's sentence is made.
        told: the stall's sentence, if it was read from a file; empty otherwise.
        round: the lowest round of the waits.
        culprits: the nodes that the roots wait for.
        behind: the nodes that wait for the roots in turn.
        witness: the smallest part of the wait-for graph that proves the stall, as (waiting node, awaited node).
        began_ns: when the stall began.
        found_ns: when it was found.
        until_ns: when the scenario or a deadline ends it; None: not known, or never.
        permanent: whether nothing that can still happen ends it.
        suspected: whether it was seen in only one snapshot, of a fleet that moved meanwhile.
        over: whether it has ended.
        remedies: the settings by which it would have ended, as a scenario writes them; None: nobody looked for them.
        ended_by: how it was ended.
    """

    cause: Cause
    roots: tuple[NodeId, ...]
    grounds: Grounds = field(default_factory=Grounds)
    told: str = ""
    round: int = 0
    culprits: tuple[NodeId, ...] = ()
    behind: tuple[NodeId, ...] = ()
    witness: tuple[Edge, ...] = ()
    began_ns: int = 0
    found_ns: int = 0
    until_ns: int | None = None
    permanent: bool = False
    suspected: bool = False
    over: bool = False
    remedies: tuple[str, ...] | None = ()
    ended_by: str = ""

    @property
    def what(self) -> str:
        """The stall in words: which nodes wait for which messages, and why these do not come."""
        return self.told or say(self.grounds, self.roots, self.behind, permanent=self.permanent)

    @property
    def text(self) -> str:
        """The stall in a few sentences: the waits with their reasons, their beginning, and the remedies."""
        ended = f" ({self.ended_by})" if self.ended_by else ""
        seen = f", last seen so at {words.seconds(self.seen_ns)}" if self.seen_ns > self.found_ns else ""
        return f"{self.what}{ended}. Since {words.seconds(self.began_ns)}{seen}. {self._advice()}".rstrip()

    def _advice(self) -> str:
        settings = words.listed((f"`{remedy}`" for remedy in self.remedies), "or") if self.remedies else ""
        if self.cause is Cause.BLOCKED_LOOP:
            again = f"It ends once {words.nodes(self.culprits)} answer{'s' * (len(self.culprits) == 1)} again"
            without = "" if not settings else f"; {settings} would {'go on' if self.permanent else 'not wait for it'}"
            return f"{again}{without}."
        if self.permanent or self.suspected:
            without = "" if self.remedies is None else "No setting of the scenario would end it."
            return f"{settings} would go on." if settings else without
        if self.over:
            return f"It is over; {settings} would not have waited for it." if settings else "It is over."
        ends = (
            "It ends by itself" if self.until_ns is None else f"It ends at {words.seconds(self.until_ns)} at the latest"
        )
        return f"{ends}; {settings} would not wait for it." if settings else f"{ends}."

    def is_same(self, other: Finding) -> bool:
        """Return whether `other` is about the same stall, which may have grown: they have some wait in common.

        A deadlock or a lost message belongs to one round, so two findings of this kind must be about one round, too.
        """
        if self.permanent and other.permanent and not self.waits.isdisjoint(other.waits):
            return True  # nothing ended it meanwhile, even if other reasons have joined
        if self.cause is not other.cause or (self.round != other.round and self.of_one_round):
            return False
        if not self.witness and not other.witness:
            return self.roots == other.roots
        return not {*self.witness}.isdisjoint(other.witness)

    @property
    def waits(self) -> frozenset[tuple[NodeId, NodeId, int]]:
        """The waits of the stall, as (waiting node, awaited node, round)."""
        return frozenset((each.waiter, each.source, each.round) for each in self.grounds.reasons)

    def is_kin(self, other: Finding) -> bool:
        """Return whether `other` may be this stall with other waiting nodes: cause and awaited nodes are equal."""
        return self.cause is other.cause and not self.of_one_round and self.culprits == other.culprits

    @property
    def of_one_round(self) -> bool:
        """Whether the stall belongs to one round: if so, the same waits in the next round are another stall."""
        return self.cause in (Cause.DEADLOCK, Cause.LOST_MESSAGE)

    @property
    def seen_ns(self) -> int:
        """The time of the last snapshot of the fleet that showed the stall, in ns."""
        return max(self.grounds.at_ns, self.found_ns)

    @property
    def detection_s(self) -> float:
        """Seconds from the beginning of the stall to its detection."""
        return (self.found_ns - self.began_ns) / NS_PER_S

    def to_event(self) -> dict[str, Any]:
        """Return the details for the events `stall` and `recovered` in the record."""
        known = {**self.to_json(), "what": self.what}
        return {key: known[key] for key in ("cause", "roots", "culprits", "behind", "what", "remedies", "text")}

    def to_json(self) -> Json:
        """Return this stall as an entry of `result.json`."""
        return {
            "text": self.text,
            "remedies": list(self.remedies or ()),
            "cause": self.cause.value,
            "round": self.round,
            "roots": list(self.roots),
            "culprits": list(self.culprits),
            "behind": list(self.behind),
            "witness": [list(edge) for edge in self.witness],
            "reasons": [each.to_json() for each in self.grounds.reasons],
            "began_s": self.began_ns / NS_PER_S,
            "found_s": self.found_ns / NS_PER_S,
            "seen_s": self.seen_ns / NS_PER_S,
            "detection_s": self.detection_s,
            "until_s": None if self.until_ns is None else self.until_ns / NS_PER_S,
            "permanent": self.permanent,
            "suspected": self.suspected,
            "over": self.over,
        }


def by_verdict(findings: Iterable[Finding]) -> dict[str, list[Json]]:
    """Return diagnosed stalls as listed in `result.json`: confirmed `deadlocks`, and all others as `stalls`."""
    found: dict[str, list[Json]] = {"deadlocks": [], "stalls": []}
    for each in findings:
        confirmed = each.cause is Cause.DEADLOCK and not each.suspected and not each.over
        found["deadlocks" if confirmed else "stalls"].append(each.to_json())
    return found


SMALL_FLEET = 100


def keep_stall(run: RunDirectory, finding: Finding, snapshot: Snapshot) -> Path | None:
    """Write a diagnosed stall with the snapshot that proves it to the run's folder `stalls`; return the path.

    Raises RunError on a full disk. None if the folder has enough findings already, or if the run keeps no files.
    """
    if not run.kept:
        return None
    folder = run.path / FOLDER
    try:
        folder.mkdir(exist_ok=True)
    except OSError as exc:
        raise RunError(f"{folder} can't be made: {exc.strerror}; everything recorded so far is kept") from exc
    number = len(list(folder.glob("*.json")))
    if number >= MOST_KEPT:
        return None
    shown = _shown(finding, snapshot)
    kept = [edge for edge in sorted(snapshot.edges) if shown.issuperset(edge)]
    edges = [{"src": src, "dst": dst} | snapshot.edges[src, dst].to_json() for src, dst in kept]
    nodes = [node for node in snapshot.nodes.values() if node.node in shown]
    found = {"finding": finding.to_json(), "at_ns": snapshot.at_ns, "nodes": nodes, "edges": edges}
    return RunDirectory(folder).write(f"{number:03d}.json", dump_by_line(found))


def _shown(finding: Finding, snapshot: Snapshot) -> set[NodeId]:
    """Return the nodes to save with a stall as its proof: all of a small fleet, else its nodes and those they await."""
    if len(snapshot.nodes) <= SMALL_FLEET:
        return set(snapshot.nodes)
    named = {*finding.roots, *finding.culprits, *finding.behind, *(node for pair in finding.witness for node in pair)}
    waits = [snapshot.nodes[node].wait for node in named & snapshot.nodes.keys()]
    return named | {node for wait in waits if wait is not None for node in wait.awaited}
