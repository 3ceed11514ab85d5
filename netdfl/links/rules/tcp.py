"""TCP over a link that loses packets, as one stage for whole messages.

Below TCP, a lost packet is sent again: loss does not remove messages, it delays them. The delivery of a message takes
the link's delay, its bytes at the link's rate, and an excess: windows that open, retransmissions, time-outs with
back-off. The excess is drawn from measurements over real TCP (`netdfl calibrate`, `tcp_table.json`), by size, loss,
round-trip time and rate, and interpolated between. Successive messages draw independently.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from pathlib import Path
from typing import Any, ClassVar

from netdfl.core.fates import FateReason
from netdfl.core.types import Json
from netdfl.links.rules.base import DROPPED, LONG_AGO, DelayStage, LinkEvent, StageOutcome, Transit, resets
from netdfl.links.rules.keyed_random import unit_uniform
from netdfl.links.rules.latency import Delay
from netdfl.links.rules.rate import Shape

SEGMENT = 1448
HEADERS = 52
TABLE = Path(__file__).parent / "tcp_table.json"
_NS_BITS = 8 * 10**9
_MOST_CURVES = 1000
UNLIMITED_BPS = 100e9
"""The rate in bit/s that is used for a link without a rate limit."""


@dataclass(frozen=True)
class TcpTable:
    """The measured excess times of messages over TCP, in microseconds: what a message takes beyond delay and rate.

    Each distribution of excess times is stored as means over slices of it, so that its mean keeps a heavy tail.

    Attributes:
        levels: where the slices of `excess_us` begin, as shares of the messages that arrive, from 0.
        excess_us: for each (size, loss, round-trip time, rate) in order, the mean excess of the messages in each slice.
        dead: for each of these in order, the share of messages that never arrive.
        depths: where the slices of `single_us` begin. A depth is the number of losses in a row that are as rare as a
            message's excess: log(share of messages with a larger excess) / log(loss).
        single_us: for each (loss above 0, round-trip time) in order, the mean excess in each slice, for messages of one
            segment. A time-out begins near depth 1 whatever the loss, so it stays one between two measured losses.
        timeout_ns, timeout_rtts: a lost segment without a later one is sent again after about `timeout_ns` plus
            `timeout_rtts` round-trip times.
        dead_ns: a message that would take longer than this never arrives.
    """

    sizes: tuple[int, ...]
    losses: tuple[float, ...]
    rtts_ns: tuple[int, ...]
    rates_bps: tuple[float, ...]
    levels: tuple[float, ...]
    excess_us: tuple[tuple[int, ...], ...]
    dead: tuple[float, ...]
    depths: tuple[float, ...]
    single_us: tuple[tuple[int, ...], ...]
    timeout_ns: int
    timeout_rtts: float
    dead_ns: int

    @classmethod
    def of(cls, data: Json) -> TcpTable:
        """Return the table in the JSON data that `packets.calibration.fit.write` wrote."""
        plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
        return cls(**plain | {rows: tuple(map(tuple, data[rows])) for rows in ("excess_us", "single_us")})

    def curve(self, nbytes: int, loss: float, rtt_ns: float, rate_bps: float) -> tuple[list[float], float]:
        """Return the excess delay of messages of several segments, in ns per slice, and the share that arrive.

        A slice is a part of the distribution of delays; slices begin at `levels`. The result is interpolated linearly
        in size, loss and round-trip time, also beyond the table, and in the rate's logarithm within the table.
        """
        found, dead = [0.0] * len(self.levels), 0.0
        for place, weight in self._corners(nbytes, loss, rtt_ns, rate_bps):
            dead += weight * self.dead[place]
            for level, excess_us in enumerate(self.excess_us[place]):
                found[level] += 1000 * weight * excess_us
        return list(accumulate((max(0.0, each) for each in found), max)), min(1.0, 1 - dead)

    def _corners(self, nbytes: int, loss: float, rtt_ns: float, rate_bps: float) -> Iterator[tuple[int, float]]:
        """Yield the table entries around a message, by index, each with a positive weight in the interpolation."""
        rate = min(max(rate_bps, self.rates_bps[0]), self.rates_bps[-1])
        axes = (
            _weights(self.sizes, nbytes),
            _weights(self.losses, loss),
            _weights(self.rtts_ns, rtt_ns),
            _weights([math.log(each) for each in self.rates_bps], math.log(rate)),
        )
        shape = (len(self.sizes), len(self.losses), len(self.rtts_ns), len(self.rates_bps))
        for corner in product(*axes):
            place, weight = 0, 1.0
            for (index, share), count in zip(corner, shape, strict=True):
                place, weight = place * count + index, weight * share
            if weight:
                yield place, weight

    def one_segment(self, u: float, loss: float, rtt_ns: float) -> float:
        """Return the excess delay in ns of a one-segment message over TCP at the quantile `u` of its distribution.

        Beyond the last of `depths` (losses in a row), the delay doubles, as the time-outs of TCP do.
        """
        if not loss:
            return 0.0
        if loss >= 1:
            return math.inf
        depth = math.log(1 - u) / math.log(loss)
        slice_, found = bisect_right(self.depths, depth) - 1, 0.0
        for (row, share), (column, part) in product(
            _weights(self.losses[1:], max(loss, self.losses[1])), _weights(self.rtts_ns, rtt_ns)
        ):
            found += 1000 * share * part * self.single_us[row * len(self.rtts_ns) + column][slice_]
        return max(0.0, found) * math.pow(2, max(0.0, min(depth, 99) - self.depths[-1]))


def _weights(axis: Sequence[float], x: float) -> list[tuple[int, float]]:
    """Return the indices of the two points of `axis` around or nearest to `x`, and their interpolation weights."""
    left = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
    share = (x - axis[left]) / (axis[left + 1] - axis[left])
    return [(left, 1 - share), (left + 1, share)]


@cache
def default_table() -> TcpTable:
    """Return the table of TCP delays that ships with netdfl."""
    return TcpTable.of(json.loads(TABLE.read_text(encoding="utf-8")))


class Tcp(DelayStage):
    """The stage that combines a link's loss, rate and latency into the delay of messages over TCP.

    Messages stay in order. Only a message that would never arrive is lost: it is dropped (`dead`). A message's bytes
    wait for earlier bytes at the link's rate; behind shared links, which have carried them, the message's mean rate
    there counts. A change acts on messages that enter after it; a reset drops the messages under way.
    """

    __slots__ = (
        *("_curves", "_free_ns", "_further_loss", "_further_ns", "_table"),
        *("delay", "loss", "rate", "scales", "seed"),
    )
    reason: ClassVar[FateReason] = FateReason("dead")

    def __init__(self, seed: int, table: TcpTable, loss: object, rate: object, delay: Delay) -> None:
        """Store the edge's random `seed`, and the link's rules. Raises ValueError for a loss or rate from a trace."""
        super().__init__()
        self.seed = seed
        self._table = table
        self._free_ns = LONG_AGO
        self._further_loss, self._further_ns = 0.0, 0
        self.scales = {"rate": 1.0, "latency": 1.0}
        self._take({"loss": loss, "rate": rate, "latency": delay})

    def _take(self, values: Json) -> None:
        if "loss" in values:
            self.loss = share_of_loss(values["loss"])
        if "rate" in values:
            self.rate = _bits(values["rate"])
        if "latency" in values:
            self.delay: Delay = values["latency"]
        for key in self.scales:
            self.scales[key] = values.get(f"{key}_scale", self.scales[key])
        self._curves: dict[tuple[int, float], tuple[list[float], float]] = {}

    def go_further(self, loss: float, delay_ns: int) -> None:
        """Add the loss and the delay in ns that packets meet on core links to the link's own loss and delay."""
        self._further_loss, self._further_ns = loss, delay_ns
        self._curves = {}

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the last byte of the message `unit` arrives, or `DROPPED` if it never does."""
        if unit.share_bps is None:
            rate_bps = self.rate * self.scales["rate"]
            line_ns = on_the_line_ns(unit.nbytes, rate_bps)
        else:
            rate_bps, line_ns = float(f"{unit.share_bps or self.rate:.3g}"), 0
        u, table = unit_uniform(self.seed, unit), self._table
        way_ns = (
            self.delay.constant_ns
            if self.delay.quantile is None
            else int(self.delay.quantile(unit_uniform(self.seed ^ 1, unit)))
        )
        way_ns = int(way_ns * self.scales["latency"]) + self._further_ns
        if unit.nbytes <= SEGMENT:
            excess_ns = table.one_segment(u, self._whole_loss, 2 * way_ns)
        else:
            excess_ns = self._excess_ns(unit.nbytes, u, 2 * way_ns, rate_bps)
        if excess_ns > table.dead_ns:
            return DROPPED
        self._free_ns = max(now_ns, self._free_ns) + line_ns
        self._last_ns = max(self._last_ns, self._free_ns + way_ns + int(excess_ns))
        return self._last_ns

    @property
    def _whole_loss(self) -> float:
        further = self._further_loss
        return 1 - (1 - self.loss) * (1 - further) if further else self.loss

    def _excess_ns(self, nbytes: int, u: float, rtt_ns: float, rate_bps: float) -> float:
        curve = self._curves.get((nbytes, rate_bps))
        if curve is None or self.delay.quantile is not None:
            if len(self._curves) >= _MOST_CURVES:
                self._curves.clear()
            curve = self._curves[nbytes, rate_bps] = self._table.curve(nbytes, self._whole_loss, rtt_ns, rate_bps)
        slices, coming = curve
        return slices[bisect_right(self._table.levels, u / coming) - 1] if u < coming else math.inf

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply new parameters; at a reset, drop the messages under way."""
        self._take(event)
        if resets(event):
            self._free_ns = now_ns
        return super().changed(event, now_ns)


def on_the_line_bytes(nbytes: int) -> int:
    """Return a message's size in bytes including the headers of its packets."""
    return nbytes + -(-nbytes // SEGMENT) * HEADERS


def on_the_line_ns(nbytes: int, rate_bps: float) -> int:
    """Return the time in ns that a message and the headers of its packets take at `rate_bps`."""
    return math.ceil(on_the_line_bytes(nbytes) * _NS_BITS / rate_bps)


def share_of_loss(loss: object) -> float:
    """Return the mean share of packets that the model `loss` loses. Raises ValueError for a trace."""
    found = 0.0 if loss is None else getattr(loss, "probability", getattr(loss, "stationary_loss", None))
    if found is None:
        raise ValueError("the tcp model knows no loss from a trace; give a probability, or use loss_layer: message")
    return float(found)


def _bits(rate: object) -> float:
    if not isinstance(rate, Shape) or rate.rate_bps == 0:
        raise ValueError("the tcp model knows no rate of 0 or from a trace; give a rate, or use loss_layer: message")
    return rate.rate_bps or UNLIMITED_BPS
