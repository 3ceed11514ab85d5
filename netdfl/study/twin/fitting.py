"""The fit of latencies, rates and compute times to the times recorded in a run, each with an interval.

A delay is fitted as latency + 8 bytes / rate by least absolute deviations, on which a few late messages have little
effect. The intervals come from the bootstrap: whole rounds are drawn with replacement, and each draw is fitted. If
there is only one round, messages are drawn in place of rounds.

There are two readings of the bytes: all messages of a node share its uplink, or each link has a rate of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from netdfl.core.rng import Streams
from netdfl.study.twin.samples import LEAST, Floats, RecordedTimes

Shared: TypeAlias = Literal["uplink", "link"]
BITS = 8
DRAWS, SHARE, NORMAL = 200, 0.95, 1.96
APART = 4.0
"""A node gets its own fit if its latency or rate is this many standard deviations from the fleet's.

That is rare by chance.
"""
SPREAD = 1.3
"""The smallest ratio of large to small messages with which a latency can be told from a rate."""
RESOLUTION = 1e-6
"""The smallest half-width of an interval, as a share of the value; it matters for a record without any noise."""
UNSURE_S = 1e-9
"""The smallest half-width of a time's interval, in s."""
SLOW = 1.5
"""A node is slow if its median time is at least this multiple of the fleet's."""
TINY = 1e-12
STEPS = 30
CLEARLY, ALIKE = 0.8, 0.005
"""CLEARLY: the largest ratio of two mean deviations with which one model of rates fits clearly better than the other.

The two models are a rate of each node's uplink and a rate of each link. ALIKE: this share of the mean delay is added to
both deviations before they are compared.
"""


class FittedValue(NamedTuple):
    """A fitted value with the lower and the upper end of its interval."""

    value: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """The standard deviation of the normal distribution with this interval."""
        return (self.high - self.low) / (2 * NORMAL)

    def holds(self, value: float) -> bool:
        """Return whether `value` lies within the interval."""
        return self.low <= value <= self.high


class FittedLink(NamedTuple):
    """The latency in seconds and the rate in bit/s of a link; the rate is None if it is too high to be measured."""

    latency_s: FittedValue
    rate_bps: FittedValue | None


@dataclass(frozen=True)
class Fit:
    """The fitted latencies, rates and compute times of a fleet.

    Attributes:
        shared: where the rate limits messages, by the better fit or as given: at an `uplink`, which all messages of a
            node share, or at each `link`.
        whole: latency and rate of all messages, except those in `by_node`.
        by_node: latency and rate of the messages that a node sent, for nodes that differ from the others.
        compute_s: the mean time in s that a node computes in a round.
        jitter_s: the standard deviation of that time.
        slow: the slow nodes, each with the factor by which it takes longer.
        messages: the number of messages.
        rounds: the number of rounds in which they were sent.
        told_apart: whether message sizes differ enough to tell latency from rate; if not, the latency is the given one.
        clearly: whether `shared` fits clearly better than the other possibility, or was given.
    """

    shared: Shared
    whole: FittedLink
    by_node: dict[int, FittedLink]
    compute_s: FittedValue
    jitter_s: float
    slow: dict[int, float]
    messages: int
    rounds: int
    told_apart: bool
    clearly: bool


def fit(samples: RecordedTimes, latency_s: float = 0.0, reading: Shared | None = None, seed: int = 0) -> Fit:
    """Fit latencies, rates and compute times to the samples of a run.

    Args:
        samples: the samples.
        latency_s: the latency in s to take if all messages are about equally large.
        reading: where the rate limits messages, at a node's `uplink` or at each `link`; None takes what fits better,
            and the uplink if both fit.
        seed: the seed of the bootstrap.
    """
    rng = Streams(seed).rng("fit")
    found, clearly = _reading(samples)
    shared = reading or found
    nbytes = samples.shared if shared == "uplink" else samples.own
    told_apart = _vary(nbytes)
    fixed = None if told_apart else latency_s
    whole = _line(samples, nbytes, np.ones(len(nbytes), dtype=bool), fixed, rng)
    by_node = dict(_of_nodes(samples, nbytes, whole, fixed, rng))
    alike = ~np.isin(samples.src, list(by_node))
    if by_node and alike.sum() >= LEAST:
        whole = _line(samples, nbytes, alike, fixed, rng)
        by_node = dict(_of_nodes(samples, nbytes, whole, fixed, rng))
    compute, jitter, slow = _compute(samples, rng)
    clearly = clearly or reading is not None
    rounds = len(np.unique(samples.round))
    return Fit(shared, whole, by_node, compute, jitter, slow, len(nbytes), rounds, told_apart, clearly)


def _vary(nbytes: Floats) -> bool:
    """Return whether message sizes differ enough to tell a latency from a rate."""
    return bool(nbytes.max() > SPREAD * nbytes.min())


def _reading(samples: RecordedTimes) -> tuple[Shared, bool]:
    """Return where a rate limits messages, `uplink` or `link`, by the smaller deviations, and if it fits clearly."""
    left = {}
    for name, nbytes in (("link", samples.own), ("uplink", samples.shared)):
        latency, slope = _least_deviations(samples, nbytes, np.ones((1, len(nbytes))), None)
        deviations = np.abs(samples.delay - latency[0] * samples.latent - slope[0] * nbytes)
        left[name] = float(deviations.mean() + ALIKE * samples.delay.mean())
    if left["link"] < CLEARLY * left["uplink"]:
        return "link", True
    return "uplink", left["uplink"] < CLEARLY * left["link"]


def _line(
    samples: RecordedTimes, nbytes: Floats, mine: NDArray[np.bool_], fixed: float | None, rng: np.random.Generator
) -> FittedLink:
    of = samples.messages(mine)
    latency, slope = _least_deviations(of, nbytes[mine], _times(of.round, rng), fixed)
    when, seen = _interval(latency, UNSURE_S), RESOLUTION * float(of.delay.max()) + UNSURE_S
    if min(slope[0], np.quantile(slope[1:], (1 - SHARE) / 2)) * nbytes[mine].max() <= seen:
        return FittedLink(when, None)
    return FittedLink(when, _interval(BITS / np.maximum(slope, TINY)))


def _least_deviations(
    samples: RecordedTimes, nbytes: Floats, times: Floats, fixed: float | None
) -> tuple[Floats, Floats]:
    """Return latencies in s, and seconds for a byte, with the least absolute deviations, found by repeated weighting.

    Neither is below 0. `nbytes` are the bytes of each sample. `times` has a row for each fit, with the number of times
    that each sample counts; `fixed` is a given latency.
    """
    y, latent, scale = samples.delay, samples.latent, float(nbytes.max()) or 1.0
    at, weights = nbytes / scale, times.copy()
    latency, slope = np.full(len(times), fixed or 0.0), np.zeros(len(times))
    for _ in range(STEPS):
        ll, lx, xx = weights @ latent**2, weights @ (latent * at), weights @ at**2
        ly, xy = weights @ (latent * y), weights @ (at * y)
        if fixed is None:
            varies = ll * xx - lx**2
            told = varies > TINY * ll * xx
            latency = np.where(told, (ly * xx - xy * lx) / np.where(told, varies, 1.0), 0.0).clip(min=0.0)
        slope = (xy - latency * lx) / np.maximum(xx, TINY)
        if fixed is None:  # without a positive slope, all is latency
            latency = np.where(slope > 0, latency, ly / np.maximum(ll, TINY))
        slope = slope.clip(min=0.0)
        weights = times / np.maximum(np.abs(y - latency[:, None] * latent - slope[:, None] * at), UNSURE_S)
    return latency, slope / scale


def _times(rounds: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Return how often each sample counts in each fit of the bootstrap, one row for each fit.

    In the first row each counts once; in every other row, as often as its round was drawn. If there is only one round,
    samples are drawn in place of rounds, because the same round every time gives no interval.
    """
    names, places = np.unique(rounds, return_inverse=True)
    if len(names) == 1:
        names = places = np.arange(len(rounds))
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS)
    return np.concatenate([np.ones((1, len(rounds))), drawn[:, places].astype(float)])


def _interval(found: Floats, unsure: float = 0.0) -> FittedValue:
    """Return the first of `found` as the fitted value, with the interval that the other ones (bootstrap) give.

    None of them is below 0. `unsure` is added to the interval at both ends.
    """
    value, room = float(found[0]), RESOLUTION * abs(float(found[0])) + unsure
    low, high = np.quantile(found[1:], [(1 - SHARE) / 2, (1 + SHARE) / 2])
    return FittedValue(value, max(0.0, min(float(low), value) - room), max(float(high), value) + room)


def _of_nodes(
    samples: RecordedTimes, nbytes: Floats, whole: FittedLink, fixed: float | None, rng: np.random.Generator
) -> Iterator[tuple[int, FittedLink]]:
    """Yield latency and rate for each node whose fit differs from the fleet's by far more than their uncertainty."""
    for node in np.unique(samples.src).tolist():
        mine = samples.src == node
        if mine.sum() < LEAST:
            continue
        enough = fixed is not None or _vary(nbytes[mine])
        line = _line(samples, nbytes, mine, fixed if enough else whole.latency_s.value, rng)
        if _apart(line, whole, nbytes[mine]):
            yield node, line


def _apart(line: FittedLink, whole: FittedLink, nbytes: Floats) -> bool:
    """Return whether two fits differ by far more than their uncertainty.

    Where only one has a rate, the delays of the smallest and the largest of `nbytes` are compared.
    """
    if line.rate_bps is not None and whole.rate_bps is not None:
        pairs = [(line.latency_s, whole.latency_s), (line.rate_bps, whole.rate_bps)]
    elif line.rate_bps is None and whole.rate_bps is None:
        pairs = [(line.latency_s, whole.latency_s)]
    else:
        pairs = [(_delay(line, size), _delay(whole, size)) for size in (float(nbytes.min()), float(nbytes.max()))]
    return any(abs(a.value - b.value) > APART * math.hypot(a.deviation, b.deviation) for a, b in pairs)


def _delay(line: FittedLink, nbytes: float) -> FittedValue:
    """Return how long a message of `nbytes` takes by a fit, in s, with latency's and rate's intervals combined."""
    latency, rate = line
    if rate is None:
        return latency
    value = latency.value + BITS * nbytes / rate.value
    half = NORMAL * math.hypot(latency.deviation, BITS * nbytes * rate.deviation / rate.value**2)
    return FittedValue(value, value - half, value + half)


def _compute(samples: RecordedTimes, rng: np.random.Generator) -> tuple[FittedValue, float, dict[int, float]]:
    """Return the mean time in s of a round's work, its standard deviation, and the slow nodes with their factors."""
    usual = float(np.median(samples.busy))
    nodes = np.unique(samples.busy_node).tolist()
    medians = {node: float(np.median(samples.busy[samples.busy_node == node])) for node in nodes}
    slow = {node: time / usual for node, time in sorted(medians.items()) if usual > 0 and time >= SLOW * usual}
    rest = ~np.isin(samples.busy_node, list(slow))
    times = _times(samples.busy_round[rest], rng)
    means = times @ samples.busy[rest] / times.sum(axis=1)
    return _interval(means, UNSURE_S), float(samples.busy[rest].std()), slow
