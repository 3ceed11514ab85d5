"""The secret of a fleet: every call proves knowledge of it, before a port reads or stores anything of the call.

A caller puts two entries into the metadata of each call: the version of the protocol, and a proof. The secret itself is
never sent. A proof is a hash, keyed by the secret, of the node that is called. So a stranger who listens where a node
has left learns nothing that another port would accept.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from netdfl.core.types import NodeId
from netdfl.transport.security.credentials import who
from netdfl.transport.wire import PROTOCOL_VERSION

Metadata: TypeAlias = tuple[tuple[str, str], ...]
VERSION_KEY, PROOF_KEY = "netdfl-version", "netdfl-proof"
VERSION, SECRET, NOT_OF_THIS_FLEET = "version", "secret", "not of this fleet"
"""The only reasons that a refused caller is given: another version, a wrong secret, not a member. The record has
more."""


@dataclass(frozen=True, kw_only=True)
class FleetSecret:
    """The secret of a fleet; without `text` the fleet is open to everyone who reaches its ports.

    With `by_address`, a proof holds only for the exact address of the called node, which everybody knows from the
    supervisor. Without it, a proof stays valid when the called node restarts, at another address or the same: whoever
    listened there meanwhile has proofs for it.
    """

    text: str = field(default="", repr=False)
    by_address: bool = True

    def proof(self, callee: NodeId, address: str) -> Metadata:
        """Return the metadata that proves this secret in a call to node `callee`, which listens at `address`."""
        version = (VERSION_KEY, str(PROTOCOL_VERSION))
        return (version, (PROOF_KEY, self._digest(callee, address))) if self.text else (version,)

    def objection(self, metadata: Mapping[str, str | bytes], callee: NodeId, address: str) -> str:
        """Return the reason to refuse a call to `callee` at `address`; empty if the metadata prove the secret."""
        if metadata.get(VERSION_KEY) != str(PROTOCOL_VERSION):
            return VERSION
        shown = str(metadata.get(PROOF_KEY, ""))
        if self.text and not hmac.compare_digest(shown.encode(), self._digest(callee, address).encode()):
            return SECRET
        return ""

    def _digest(self, callee: NodeId, address: str) -> str:
        audience = address if self.by_address and callee >= 0 else who(callee)
        return hmac.new(self.text.encode(), audience.encode(), hashlib.sha256).hexdigest()


OPEN = FleetSecret()
