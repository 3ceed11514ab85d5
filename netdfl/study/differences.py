"""Which differences between the points of a grid hold: paired t-tests over seeds, corrected by Holm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from netdfl.study.outcome import SHARES
from netdfl.study.summary import LEAST, Point, estimate

LEVEL = 0.05
"""The chance, over all pairs of one figure, that a difference is said to hold where there is none."""


@dataclass(frozen=True)
class Difference:
    """How `first` and `second` differ in one figure, over the seeds that both have.

    `mean`, `low` and `high` are the mean of `second - first` and its 95 % interval; of a figure that is averaged by its
    logarithm, of the quotient. `p` is of the paired t-test, `p_holm` corrected for all pairs of the figure.
    """

    figure: str
    first: Point
    second: Point
    seeds: int
    mean: float
    low: float
    high: float
    p: float
    p_holm: float = 1.0

    @property
    def holds(self) -> bool:
        """Whether chance alone would hardly do this."""
        return self.p_holm < LEVEL


def differences(points: Sequence[Point], figure: str, *, log: bool = False) -> list[Difference]:
    """The difference of every pair of points that differ in one respect; none where fewer than two seeds are shared.

    A figure that is 0 or 1 in each cell has none: its intervals say what there is to say.
    """
    if figure in SHARES:
        return []
    pairs = [(a, b) for a, b in combinations(points, 2) if _apart(a, b) == 1]
    return holm([found for a, b in pairs if (found := _difference(a, b, figure, log=log)) is not None])


def holm(found: Sequence[Difference]) -> list[Difference]:
    """The differences with p-values corrected by Holm: the k-th smallest of m times m - k + 1, never decreasing."""
    corrected: dict[int, float] = {}
    most = 0.0
    for rank, index in enumerate(sorted(range(len(found)), key=lambda index: found[index].p)):
        most = max(most, min(1.0, (len(found) - rank) * found[index].p))
        corrected[index] = most
    return [replace(each, p_holm=corrected[index]) for index, each in enumerate(found)]


def _apart(a: Point, b: Point) -> int:
    """In how many respects two points differ."""
    return (a.case != b.case) + sum(x != y for x, y in zip(a.values, b.values, strict=True))


def _difference(a: Point, b: Point, figure: str, *, log: bool) -> Difference | None:
    seeds = [seed for seed, found in a.by_seed.items() if figure in found and figure in b.by_seed.get(seed, {})]
    if len(seeds) < 2:
        return None
    pairs = [(a.by_seed[seed][figure], b.by_seed[seed][figure]) for seed in seeds]
    if log:
        pairs = [(math.log(max(x, LEAST)), math.log(max(y, LEAST))) for x, y in pairs]
    apart = [y - x for x, y in pairs]
    found = estimate(apart)
    bounds = [math.exp(x) if log else x for x in found[1:]]
    return Difference(figure, a, b, len(seeds), bounds[0], bounds[1], bounds[2], paired_t(apart))


def paired_t(apart: Sequence[float]) -> float:
    """The two-sided p-value of Student's t-test that the mean of these differences is 0."""
    from scipy.special import stdtr

    count = len(apart)
    mean = math.fsum(apart) / count
    variance = math.fsum((x - mean) ** 2 for x in apart) / (count - 1)
    if mean == 0.0:
        return 1.0
    if variance == 0.0:  # the same in every run: no chance is involved
        return 0.0
    return float(2 * stdtr(count - 1, -abs(mean) / math.sqrt(variance / count)))
