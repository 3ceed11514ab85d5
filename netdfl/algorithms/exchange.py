"""How a scenario wants messages exchanged: what every catalog function is given beside its own parameters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from netdfl.algorithms.wait import WaitPolicy
from netdfl.core.rng import Streams
from netdfl.core.types import OnMissing

if TYPE_CHECKING:
    from netdfl.compression.base import Compressor

Delivery = Literal["plain", "acknowledged", "running_sums"]
ExtrasTravel = Literal["exact", "compressed"]
Scheme = Literal["auto", "choco", "deepsqueeze", "edge", "push_sum", "plain", "ef14", "ef21", "unsafe"]


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """The wait, what to do about a neighbor that did not arrive, and the compression of messages.

    `delivery` is what becomes of a message that is lost: nothing, or it is sent again until it is
    answered, or push-sum sends running sums that make up for it. `extras` says how what a method reports to
    its server beside the model travels. `common_start` says that all nodes
    start from the same parameters, `num_rounds` how many rounds there are. `streams` is where compressors draw from.
    """

    wait: WaitPolicy = field(default_factory=WaitPolicy)
    on_missing: OnMissing = "self"
    delivery: Delivery = "plain"
    compressor: Compressor | None = None
    scheme: Scheme = "auto"
    gamma: float | Literal["auto"] = "auto"
    extras: ExtrasTravel = "exact"
    common_start: bool = False
    num_rounds: int | None = None
    streams: Streams = field(default_factory=lambda: Streams(0))
