"""Credentials: the certificate and key by which a node proves its identity, new after each restart, and their names.

A certificate holds two names. By the first, `node-3.RUN.netdfl`, TLS checks that the server at an address is the node
that the caller wants. The second, `epoch-1.node-3.RUN.netdfl`, tells a server who calls: node 3 of the run, in the life
after its first restart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from netdfl.core.control import EVALUATOR
from netdfl.core.types import NodeId

SUPERVISOR: NodeId = -2
"""The number in a supervisor's certificate; no node has it."""
NOBODY: NodeId = -3
"""The number of a caller whose certificate names no member of the run."""
MEMBERS = {SUPERVISOR: "supervisor", EVALUATOR: "evaluator"}
_CALLER = re.compile(r"epoch-(0|[1-9][0-9]{0,9})\.([a-z]+|node-(0|[1-9][0-9]{0,9}))\.([0-9a-f]+)\.netdfl", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """A certificate with its key, and the authority whose certificates are trusted, all as PEM.

    Credentials are kept in memory and handed over pipes. `repr` does not show the key.
    """

    run: str
    authority: str = field(repr=False)
    certificate: str = field(repr=False)
    key: str = field(repr=False)


class CertificateSubject(NamedTuple):
    """The subject of a certificate: a node of a run, and how often the node had restarted (`epoch`)."""

    run: str
    node: NodeId
    epoch: int

    def objection(self, node: NodeId, epoch: int) -> str:
        """Return the reason why this certificate can't belong to `node` after `epoch` restarts; empty if it can."""
        if (self.node, self.epoch) == (node, epoch):
            return ""
        return f"{self}, by its certificate, says that it is {who(node)} of epoch {epoch}"

    def __str__(self) -> str:
        return "somebody" if self.node == NOBODY else f"{who(self.node)} of epoch {self.epoch}"


def who(node: NodeId) -> str:
    """Return the name of a node for messages to people, such as `node 3`."""
    return f"the {MEMBERS[node]}" if node in MEMBERS else f"node {node}"


def name_of(run: str, node: NodeId) -> str:
    """Return the host name in the certificate of `node`, which its callers verify."""
    return f"{MEMBERS.get(node, f'node-{node}')}.{run}.netdfl"


def names_of(caller: CertificateSubject) -> tuple[str, str]:
    """Return both host names in a certificate: one names the node, the other the node and its number of restarts."""
    asked = name_of(caller.run, caller.node)
    return asked, f"epoch-{caller.epoch}.{asked}"


def read_names(names: Iterable[str]) -> CertificateSubject | None:
    """Return the node and number of restarts in a certificate's host names; None if they give none, or several."""
    found = {
        CertificateSubject(match[4], node, int(match[1]))
        for name in names
        if (match := _CALLER.fullmatch(name)) and (node := _member(match[2], match[3])) is not None
    }
    return found.pop() if len(found) == 1 else None


def _member(name: str, number: str | None) -> NodeId | None:
    if number is not None:
        return int(number)
    return next((node for node, member in MEMBERS.items() if member == name), None)
