"""What a life of a node proves itself with, and what its certificate says of it.

A certificate holds two names. `node-3.RUN.netdfl` is whom a caller asks for: TLS itself checks that whoever is at an
address has it. `epoch-1.node-3.RUN.netdfl` is who calls: node 3 of the run, restarted once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from netdfl.core.control import EVALUATOR
from netdfl.core.types import NodeId

SUPERVISOR: NodeId = -2
"""The number under which a supervisor is certified: it is no node, and no node's certificate has it."""
NOBODY: NodeId = -3
"""Whose certificate names no member of the run."""
MEMBERS = {SUPERVISOR: "supervisor", EVALUATOR: "evaluator"}
_CALLER = re.compile(r"epoch-(0|[1-9][0-9]{0,9})\.([a-z]+|node-(0|[1-9][0-9]{0,9}))\.([0-9a-f]+)\.netdfl", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A certificate with its key, and the authority whose certificates are trusted; all as PEM.

    They are kept in memory, and handed over a pipe: no representation shows the key.
    """

    run: str
    authority: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)


class Certified(NamedTuple):
    """Who a certificate was made for: a node of a run, in one of its lives."""

    run: str
    node: NodeId
    epoch: int

    def objection(self, node: NodeId, epoch: int) -> str:
        """Why whoever has this certificate can't be `node` in its life `epoch`; empty: it is."""
        if (self.node, self.epoch) == (node, epoch):
            return ""
        return f"{self}, by its certificate, says that it is {who(node)} of epoch {epoch}"

    def __str__(self) -> str:
        return "somebody" if self.node == NOBODY else f"{who(self.node)} of epoch {self.epoch}"


def who(node: NodeId) -> str:
    """A member of a run, as it may stand in a sentence."""
    return f"the {MEMBERS[node]}" if node in MEMBERS else f"node {node}"


def name_of(run: str, node: NodeId) -> str:
    """The name that the certificate of `node` has for those who call it."""
    return f"{MEMBERS.get(node, f'node-{node}')}.{run}.netdfl"


def names_of(caller: Certified) -> tuple[str, str]:
    """All names of a certificate."""
    asked = name_of(caller.run, caller.node)
    return asked, f"epoch-{caller.epoch}.{asked}"


def read_names(names: Iterable[str]) -> Certified | None:
    """Whom the names of a certificate speak of; None where that is nobody, or more than one."""
    found = {
        Certified(match[4], node, int(match[1]))
        for name in names
        if (match := _CALLER.fullmatch(name)) and (node := _member(match[2], match[3])) is not None
    }
    return found.pop() if len(found) == 1 else None


def _member(name: str, number: str | None) -> NodeId | None:
    if number is not None:
        return int(number)
    return next((node for node, member in MEMBERS.items() if member == name), None)
