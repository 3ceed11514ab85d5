"""Latency: the delay of a message or packet besides the time that its bytes take.

Relies on: keyed draws, and `DelayStage`, which remembers what is in flight for a reset of the link.

Why: A distribution is its inverse function, so one uniform draw by name gives the delay, the same in every world.
Without `fifo`, messages may overtake each other, which code that waits for messages must know (`ordered`). Constant and
random delays are kept apart, because the engine then computes the arrivals of whole multicasts.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Literal, TypeAlias

from netdfl.core.errors import OwnPartError
from netdfl.core.given_files import given_text
from netdfl.core.tables import by_name
from netdfl.core.units import Bound, TimeNs, format_time, parse_time_ns
from netdfl.core.whose import own_place_here
from netdfl.links.rules.base import DelayStage, LinkEvent, RoundValues, StageOutcome, Transit
from netdfl.links.rules.keyed_random import unit_uniform

ArrivalOrder: TypeAlias = Literal["fifo", "free"]
_z = NormalDist().inv_cdf
_cdf = NormalDist().cdf
_pdf = NormalDist().pdf


@dataclass(frozen=True, slots=True)
class Delay:
    """A distribution of delays: its inverse CDF, from (0, 1) to nanoseconds, or one constant.

    `fifo` keeps the order of entry: a message never leaves before one that entered earlier. `mean_ns` is the mean of
    the distribution, without the effect of `fifo`; None where it is not known.
    """

    fifo: bool
    constant_ns: int = 0
    quantile: Callable[[float], float] | None = None
    mean_ns: float | None = None

    def __post_init__(self) -> None:
        """Refuse a negative constant, and have each value of a user's `quantile` looked at."""
        if not self.constant_ns >= 0:
            raise ValueError(f"constant_ns = {self.constant_ns} is no delay: {_REMEDY}")
        if self.quantile is not None and getattr(self.quantile, "__module__", "") != __name__:
            object.__setattr__(self, "quantile", _looked_at(self.quantile, own_place_here()))


_REMEDY = "give 0 or more, as by max(0, ...)"


def _looked_at(quantile: Callable[[float], float], place: str) -> Callable[[float], float]:
    """Return a user's `quantile`, which raises OwnPartError where it gives no time; `place` is where it was given."""
    where = f" ({place})" if place else ""

    def looked_at(u: float) -> float:
        found = quantile(u)
        try:
            fits = 0 <= found < math.inf
        except TypeError:
            fits = False
        if not fits:
            text = f"{found:g} ns" if isinstance(found, float | int) else repr(found)
            raise OwnPartError(f"an own latency gave a delay of {text} at u = {u:.3g}: {_REMEDY}{where}")
        return found

    return looked_at


def _positive(**times_ns: int) -> None:
    for name, value in times_ns.items():
        if value <= 0:
            raise ValueError(f"latency {name} = {format_time(value)} must be above 0; for no variation write constant")


def constant(*, delay: TimeNs) -> Delay:
    """Delay every unit by the same time (so in order).

    A unit is a message, or a packet where links act on packets.
    """
    return Delay(fifo=True, constant_ns=delay, mean_ns=delay)


def uniform(*, low: TimeNs, high: TimeNs, order: ArrivalOrder = "fifo") -> Delay:
    """Draw any delay from `low` to `high`, equally likely."""
    if low > high:
        raise ValueError(f"latency low = {format_time(low)} is above high = {format_time(high)}; exchange them")
    return Delay(order == "fifo", quantile=lambda u: low + (high - low) * u, mean_ns=(low + high) / 2)


def normal(*, mean: TimeNs, jitter: TimeNs, order: ArrivalOrder = "fifo") -> Delay:
    """Draw a normal delay truncated at 0: `mean` and `jitter` (standard deviation) are before truncation."""
    _positive(jitter=jitter)
    cut = -mean / jitter
    below_zero, truncated = _cdf(cut), mean + jitter * _pdf(cut) / _cdf(-cut)

    def quantile(u: float) -> float:
        return max(0.0, mean + jitter * _z(below_zero + (1 - below_zero) * u))

    return Delay(order == "fifo", quantile=quantile, mean_ns=truncated)


def lognormal(*, mean: TimeNs, jitter: TimeNs, order: ArrivalOrder = "fifo") -> Delay:
    """Draw a lognormal delay: `mean` and `jitter` are the mean and standard deviation of the delay itself."""
    _positive(mean=mean, jitter=jitter)
    variance = math.log1p((jitter / mean) ** 2)
    mu, sigma = math.log(mean) - variance / 2, math.sqrt(variance)
    return Delay(order == "fifo", quantile=lambda u: math.exp(mu + sigma * _z(u)), mean_ns=mean)


def exponential(*, mean: TimeNs, order: ArrivalOrder = "fifo") -> Delay:
    """Draw an exponential delay of the given mean."""
    _positive(mean=mean)
    return Delay(order == "fifo", quantile=lambda u: -mean * math.log1p(-u), mean_ns=mean)


def pareto(*, minimum: TimeNs, shape: Annotated[float, Bound(gt=1)], order: ArrivalOrder = "fifo") -> Delay:
    """Draw a heavy-tailed delay: P(delay > d) = (minimum / d) ** shape; its mean is minimum shape / (shape - 1)."""
    _positive(minimum=minimum)
    mean, power = minimum * shape / (shape - 1), -1 / shape
    return Delay(order == "fifo", quantile=lambda u: minimum * (1 - u) ** power, mean_ns=mean)


def empirical(*, file: str, order: ArrivalOrder = "fifo") -> Delay:
    """Draw from measured delays, each equally likely: the first column of a CSV file.

    A cell is a time with its unit (`20ms`), or a number where the header names the unit (`delay_ms`).
    """
    delays = _read_delays(file)
    return Delay(order == "fifo", quantile=lambda u: delays[int(u * len(delays))], mean_ns=sum(delays) / len(delays))


def _read_delays(file: str) -> tuple[int, ...]:
    rows = csv.reader(given_text(file).splitlines())
    cells = [row[0].strip() for row in rows if row and row[0].strip()]
    unit = ""
    if cells and not cells[0][0].isdigit():
        header = cells.pop(0)
        unit = header.rpartition("_")[2] if "_" in header else ""
    try:
        delays = sorted(parse_time_ns(cell if cell[-1].isalpha() else cell + unit) for cell in cells)
    except ValueError as exc:
        raise ValueError(f"delays in {file}: {exc}, or head the column delay_ms") from exc
    if not delays or delays[0] < 0:
        raise ValueError(f"delays in {file} are empty or negative; expected one delay of 0 or more in each row")
    return tuple(delays)


LATENCIES = by_name(constant, uniform, normal, lognormal, exponential, pareto, empirical)


class Latency(DelayStage):
    """The stage that delays each message or packet by a latency of its own.

    A change acts on messages that enter after it: one under way keeps its delay, and in `fifo` order no later one
    overtakes it. A reset drops the messages under way.
    """

    __slots__ = ("delay", "rounds", "scale", "seed")

    def __init__(self, seed: int, delay: Delay, rounds: RoundValues[tuple[Delay | None, float]] | None = None) -> None:
        """Draw delays from `delay`.

        For some rounds, `rounds` gives another delay (None: `delay`) and a factor on it.
        """
        super().__init__()
        self.seed = seed
        self.delay = delay
        self.scale = 1.0
        self.rounds = rounds

    def advance(self, unit: Transit, now_ns: int) -> int:
        """Return the time at which the message or packet `unit` arrives at the other end of the link."""
        delay, scale = self.delay, self.scale
        piece = None if self.rounds is None else self.rounds.at(unit.of_round)
        if piece is not None:
            other, factor = piece
            delay, scale = (delay, scale * factor) if other is None else (other, factor)
        try:
            delay_ns = (
                delay.constant_ns if delay.quantile is None else int(delay.quantile(unit_uniform(self.seed, unit)))
            )
        except OwnPartError as error:
            raise OwnPartError(f"on the link {unit.src}->{unit.dst} {error.what}") from error
        at_ns = now_ns + int(delay_ns * scale)
        if delay.fifo:
            if at_ns < self._last_ns:
                return self._last_ns
            self._last_ns = at_ns
        return at_ns

    def changed(self, event: LinkEvent, now_ns: int) -> Sequence[StageOutcome]:
        """Apply a new `latency` or `latency_scale`; at a reset of the link, drop the messages or packets under way."""
        self.delay, self.scale = event.get("latency", self.delay), event.get("latency_scale", self.scale)
        return super().changed(event, now_ns)
