"""What a diagnosis says: the cause, its roots, the grounds of its sentence, and what proves it.

In the `stalls` folder of a run is each finding with the snapshot that proves it and the stacks of the nodes in it.
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
"""The setting with which no wait lasts for ever."""


class Cause(StrEnum):
    """Why nodes wait. Only `DEADLOCK` is a wait of nodes for each other, or for what nobody sends."""

    DEADLOCK = "deadlock"
    LOST_MESSAGE = "lost_message"
    UNREACHABLE = "unreachable"
    STRAGGLER = "straggler"
    LIVELOCK = "livelock"
    FLOW_CONTROL = "flow_control"
    BLOCKED_LOOP = "blocked_loop"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One stall. `roots` wait first, for `culprits`; `behind` are the nodes that wait for them in turn.

    `grounds` hold who waits for whom and why; `told` is the sentence of one that came as words, from a journal.
    `remedies` are the settings with which this wait would have ended, as a scenario writes them; `ended_by` is what
    ended it. `witness` is the smallest part of the wait-for graph that proves it, as (who waits, for whom).
    `permanent`: nothing that can still happen ends it. `suspected`: seen in one snapshot of a fleet that moved
    meanwhile. `until_ns`: when the scenario or a deadline ends it.
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
    remedies: tuple[str, ...] = ()
    ended_by: str = ""

    @property
    def what(self) -> str:
        """Who waits for whom and why."""
        return self.told or say(self.grounds, self.roots, self.behind, permanent=self.permanent)

    @property
    def text(self) -> str:
        """The whole in a few sentences: who waits for whom and why, since when, and what to do."""
        ended = f" ({self.ended_by})" if self.ended_by else ""
        seen = f", last seen so at {words.seconds(self.seen_ns)}" if self.seen_ns > self.found_ns else ""
        return f"{self.what}{ended}. Since {words.seconds(self.began_ns)}{seen}. {self._advice()}"

    def _advice(self) -> str:
        settings = words.listed((f"`{remedy}`" for remedy in self.remedies), "or") if self.remedies else ""
        if self.cause is Cause.BLOCKED_LOOP:
            again = f"It ends once {words.nodes(self.culprits)} answer{'s' * (len(self.culprits) == 1)} again"
            without = "" if not settings else f"; {settings} would {'go on' if self.permanent else 'not wait for it'}"
            return f"{again}{without}."
        if self.permanent or self.suspected:
            return f"{settings} would go on." if settings else "No setting of the scenario would end it."
        ends = (
            "It ends by itself" if self.until_ns is None else f"It ends at {words.seconds(self.until_ns)} at the latest"
        )
        return f"{ends}; {settings} would not wait for it." if settings else f"{ends}."

    def is_same(self, other: Finding) -> bool:
        """Whether two looks show one stall, which may have grown: some node waits for the same one as before.

        Nodes that wait for each other, or for one message, do so in one round.
        """
        if self.permanent and other.permanent and not self.waits.isdisjoint(other.waits):
            return True  # nothing ended it meanwhile, whatever else keeps them by now
        if self.cause is not other.cause or (self.round != other.round and self.of_one_round):
            return False
        if not self.witness and not other.witness:
            return self.roots == other.roots
        return not {*self.witness}.isdisjoint(other.witness)

    @property
    def waits(self) -> frozenset[tuple[NodeId, NodeId, int]]:
        """Who waits for whom, in which round."""
        return frozenset((each.waiter, each.source, each.round) for each in self.grounds.reasons)

    def is_kin(self, other: Finding) -> bool:
        """Whether others may have come to wait for the same nodes: a stall of one look that the next shows so."""
        return self.cause is other.cause and not self.of_one_round and self.culprits == other.culprits

    @property
    def of_one_round(self) -> bool:
        """Whether the stall is one of a single round: in the next it would be another."""
        return self.cause in (Cause.DEADLOCK, Cause.LOST_MESSAGE)

    @property
    def seen_ns(self) -> int:
        """When it was so as its sentence says: at the last look that showed it."""
        return max(self.grounds.at_ns, self.found_ns)

    @property
    def detection_s(self) -> float:
        """Seconds from the beginning of the stall to the moment when it was found."""
        return (self.found_ns - self.began_ns) / NS_PER_S

    def to_event(self) -> dict[str, Any]:
        """What the record's events `stall` and `recovered` hold of it."""
        known = {**self.to_json(), "what": self.what}
        return {key: known[key] for key in ("cause", "roots", "culprits", "behind", "what", "remedies", "text")}

    def to_json(self) -> Json:
        """What `result.json` holds of it."""
        return {
            "text": self.text,
            "remedies": list(self.remedies),
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
    """Findings as `result.json` lists them: confirmed `deadlocks`, and all other `stalls`."""
    found: dict[str, list[Json]] = {"deadlocks": [], "stalls": []}
    for each in findings:
        confirmed = each.cause is Cause.DEADLOCK and not each.suspected and not each.over
        found["deadlocks" if confirmed else "stalls"].append(each.to_json())
    return found


SMALL_FLEET = 100


def keep_stall(run: RunDirectory, finding: Finding, snapshot: Snapshot) -> Path | None:
    """Write one finding with what proves it; None where the folder is full. Raises RunError on a full disk."""
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
    """The nodes that prove the finding: all of a small fleet, else those that it names and whom these await."""
    if len(snapshot.nodes) <= SMALL_FLEET:
        return set(snapshot.nodes)
    named = {*finding.roots, *finding.culprits, *finding.behind, *(node for pair in finding.witness for node in pair)}
    waits = [snapshot.nodes[node].wait for node in named & snapshot.nodes.keys()]
    return named | {node for wait in waits if wait is not None for node in wait.awaited}
