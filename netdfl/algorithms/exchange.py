"""How a scenario wants messages exchanged: what every catalog function is given beside its own parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from netdfl.algorithms.wait import WaitPolicy

if TYPE_CHECKING:
    from netdfl.compression.base import Compressor

OnMissing = Literal["self", "renormalise", "last"]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The wait, what to do about a neighbor that did not arrive, and the compression of messages."""

    wait: WaitPolicy = field(default_factory=WaitPolicy)
    on_missing: OnMissing = "self"
    compressor: Compressor | None = None
    scheme: str = "auto"
    gamma: float | Literal["auto"] = "auto"
