"""The summary of a sweep's runs by grid point: means with 95 % confidence intervals, written as tables.

Differences between points are tested by paired t-tests over seeds, corrected by Holm's method.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import NamedTuple

from netdfl.core.errors import RunError
from netdfl.core.files import write_whole, writing
from netdfl.study.cells import CellResult
from netdfl.study.outcome import PERCENT, SHARES, figures_of, has_no_negatives, is_of_models
from netdfl.study.plan import Place, Values

# Student's t at 97.5 % by degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_Z = 1.96
USUAL = 0.95
"""The confidence of intervals, as a share, unless a caller asks for another one."""
LEAST = 2.0**-52
NOISE = 8 * LEAST
"""Up to this number, a metric of an order of 1 is only rounding noise of float64, such as an error of 1e-16."""
SAME = 1e-6
"""The relative distance up to which two values are equal: sums of float32 in another order differ by less, methods by
more."""
EXACT = ("bytes_sent", "rounds")
"""Counts that depend on the method and not on chance: two methods may differ by the same number in every run."""


class Estimate(NamedTuple):
    """A mean over some runs and its confidence interval, which is of 95 % by default.

    Attributes:
        cells: the number of runs.
        mean: the mean.
        low: the lower end of the interval.
        high: the upper end of the interval.
    """

    cells: int
    mean: float
    low: float
    high: float


class GridPoint(NamedTuple):
    """A point of a grid: the cells (single runs) that differ only in the seed.

    Attributes:
        case: the name of the cells' case.
        values: the cells' varied values.
        num_failed: the number of failed runs.
        figures: the values of each metric in the runs that did not fail.
        by_seed: the metrics of each run that did not fail, by seed.
    """

    case: str
    values: Values
    num_failed: int
    figures: Mapping[str, tuple[float, ...]]
    by_seed: Mapping[int, Mapping[str, float]] = MappingProxyType({})

    @property
    def num_runs(self) -> int:
        """The number of runs that have a result."""
        return max(map(len, self.figures.values()), default=0)

    @property
    def num_not_passed(self) -> int:
        """The number of runs that have a result and did not pass."""
        return round(sum(self.figures.get("not_passed", ())))


def estimate(numbers: Sequence[float], confidence: float = USUAL) -> Estimate:
    """Return the mean and its interval by Student's t; for a single number the interval is that number."""
    mean = fmean(numbers)
    if len(numbers) == 1:
        return Estimate(1, mean, mean, mean)
    half = _quantile(len(numbers) - 1, confidence) * stdev(numbers) / math.sqrt(len(numbers))
    return Estimate(len(numbers), mean, mean - half, mean + half)


def _quantile(freedom: int, confidence: float) -> float:
    """Return the half-width of an interval in standard errors of the mean, for `freedom` degrees of freedom."""
    if confidence == USUAL and freedom <= len(_T):
        return _T[freedom - 1]
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def estimate_share(numbers: Sequence[float]) -> Estimate:
    """Return the share of `numbers` that are 1, not 0, with Wilson's interval, which lies within 0 and 1."""
    n, p = len(numbers), fmean(numbers)
    middle = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n**2))
    return Estimate(n, p, min(p, max(0.0, middle - half)), max(p, min(1.0, middle + half)))


def estimate_log(numbers: Sequence[float], confidence: float = USUAL) -> Estimate:
    """Return the geometric mean and its interval, for errors that span several orders of magnitude.

    Numbers below 2^-52 count as 2^-52, as an error of 0 has no logarithm.
    """
    logs = estimate([math.log(max(number, LEAST)) for number in numbers], confidence)
    return Estimate(logs.cells, math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))


def estimates(point: GridPoint, name: str, *, log: bool = False, confidence: float = USUAL) -> Estimate | None:
    """Return the mean of a metric over the runs of a grid point, with its interval; None if no run has the metric.

    Intervals of shares of runs are always of 95 %.
    """
    numbers = point.figures.get(name, ())
    if not numbers:
        return None
    if name in SHARES:
        return estimate_share(numbers)
    return within((estimate_log if log else estimate)(numbers, confidence), name)


def within(found: Estimate, name: str) -> Estimate:
    """Return an estimate of the metric `name` with its interval cut to possible values.

    An accuracy, for example, lies between 0 and 1, and no duration is negative.
    """
    if name in PERCENT or has_no_negatives(name):
        found = found._replace(low=min(found.mean, max(0.0, found.low)))
    return found._replace(high=max(found.mean, min(1.0, found.high))) if name in PERCENT else found


def points_of(ran: Sequence[CellResult]) -> list[GridPoint]:
    """Group results of runs by grid point, in the order of the grid."""
    grouped: dict[Place, list[CellResult]] = {}
    for each in ran:
        grouped.setdefault(each.cell.place, []).append(each)
    return [_point(case, values, cells) for (case, values), cells in grouped.items()]


def _point(case: str, values: Values, cells: Sequence[CellResult]) -> GridPoint:
    by_seed = {each.cell.seed: figures_of(each) for each in cells if not each.failed}
    found = by_seed.values()
    names = sorted({name for figures in found for name in figures})
    columns = {name: tuple(figures[name] for figures in found if name in figures) for name in names}
    return GridPoint(case, values, sum(each.failed for each in cells), columns, by_seed)


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return the rows as a Markdown table with these headings."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (headings, ["---"] * len(headings), *rows))


def write_cells(path: Path, ran: Sequence[CellResult]) -> None:
    """Write a CSV row for each cell (a run): case, values, seed, exit code, error, metrics, run directory.

    A metric with the name of a varied key gets a suffix, such as `rounds_measured`.
    """
    found = [figures_of(each) if not each.failed else {} for each in ran]
    names = sorted({name for figures in found for name in figures})
    varied = [name for name, _ in ran[0].cell.values] if ran else []
    head = _columns(varied, ["seed", "exit_code", "wrong", *names, "run"])
    write_csv(path, [head, *(_row(each, figures, names) for each, figures in zip(ran, found, strict=True))])


def _row(ran: CellResult, figures: Mapping[str, float], names: Sequence[str]) -> list[object]:
    cell, wrong = ran.cell, ran.why if ran.failed else ran.not_passed
    numbers = [figures.get(name, "") for name in names]
    return [cell.case, *(value for _, value in cell.values), cell.seed, ran.exit_code, wrong, *numbers, ran.path.name]


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Write the rows as a CSV file, whole or not at all. Raises RunError."""
    text = StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_table(path, text.getvalue())


def write_table(path: Path, text: str) -> None:
    """Write the file of a table, whole or not at all, so that a full disk leaves the earlier one. Raises RunError."""
    with writing(path, RunError):
        write_whole(path, text.encode())


def _columns(varied: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return distinct names of columns; a metric with the name of a varied key, such as `rounds`, gets a suffix."""
    return ["case", *varied, *(f"{name}_measured" if name in varied else name for name in others)]


def write_points(path: Path, points: Sequence[GridPoint], logs: frozenset[str]) -> None:
    """Write a CSV row for each point and metric, with the mean over runs and its interval, which a single run lacks.

    Metrics in `logs` are averaged by their logarithm.
    """
    varied = [name for name, _ in points[0].values] if points else []
    head = _columns(varied, ["figure", "cells", "failed", "mean", "deviation", "low", "high"])
    write_csv(path, [head, *_estimated(points, logs)])


def _estimated(points: Sequence[GridPoint], logs: frozenset[str]) -> Iterator[list[object]]:
    for point in points:
        for name in point.figures:
            found = estimates(point, name, log=name in logs)
            if found is not None:
                values = [value for _, value in point.values]
                ends = [None, None] if found.cells == 1 and name not in SHARES else [found.low, found.high]
                numbers = found.mean, deviation_of(point, name), *ends
                yield [point.case, *values, name, found.cells, point.num_failed, *numbers]


def deviation_of(point: GridPoint, name: str) -> float | None:
    """Return the standard deviation of a metric over runs; None for a share of runs, or a single run."""
    numbers = point.figures.get(name, ())
    return None if name in SHARES or len(numbers) < 2 else stdev(numbers)


LEVEL = 0.05
"""The accepted probability that at least one of all differences tested for a metric is wrongly called real."""


@dataclass(frozen=True)
class PairedDifference:
    """The difference between two points of a grid in one metric, over their common seeds.

    Attributes:
        figure: the name of the metric.
        first: the first point.
        second: the second point.
        seeds: the number of common seeds.
        mean: the mean of second minus first; of second divided by first, if the metric is averaged by its logarithm.
        low: the lower end of the mean's 95 % interval.
        high: the upper end.
        p: the p-value of the paired t-test.
        p_holm: the p-value corrected for all pairs tested in this metric.
        tested: false if both points have the same value for every seed, up to rounding (`SAME`, and `NOISE` for a
            metric averaged by its logarithm), or differ by the same amount for every seed, so that chance plays no part
            (`_is_exact`).
        by_signs: whether the points differ by the same amount for every seed, so that the test uses only the signs.
        comparisons: the number of tested pairs that `p_holm` is corrected for.
    """

    figure: str
    first: GridPoint
    second: GridPoint
    seeds: int
    mean: float
    low: float
    high: float
    p: float
    p_holm: float = 1.0
    tested: bool = True
    by_signs: bool = False
    comparisons: int = 1

    @property
    def holds(self) -> bool:
        """Whether the difference is significant, or is the same in every run and no matter of chance."""
        return self.p_holm < LEVEL


def differences(points: Sequence[GridPoint], figure: str, *, log: bool = False) -> list[PairedDifference]:
    """Return the differences in a metric of all pairs of points that differ in one respect and share two seeds or more.

    A metric that is 0 or 1 in each cell has no differences: its intervals suffice.
    """
    if figure in SHARES:
        return []
    pairs = [(a, b) for a, b in combinations(points, 2) if _apart(a, b) == 1]
    found = [each for a, b in pairs if (each := _difference(a, b, figure, log=log)) is not None]
    corrected = iter(holm([each for each in found if each.tested]))
    return [next(corrected) if each.tested else replace(each, p_holm=each.p) for each in found]


def holm(found: Sequence[PairedDifference]) -> list[PairedDifference]:
    """Return the differences with p-values corrected by Holm."""
    corrected = holm_corrected([each.p for each in found])
    return [replace(each, p_holm=p, comparisons=len(found)) for each, p in zip(found, corrected, strict=True)]


def holm_corrected(p: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm: the k-th smallest of m is multiplied by m - k + 1, and none may decrease."""
    corrected = [0.0] * len(p)
    most = 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        most = max(most, min(1.0, (len(p) - rank) * p[index]))
        corrected[index] = most
    return corrected


def _apart(a: GridPoint, b: GridPoint) -> int:
    """Return in how many respects (case, varied values) two points differ."""
    return (a.case != b.case) + sum(x != y for x, y in zip(a.values, b.values, strict=True))


def _difference(a: GridPoint, b: GridPoint, figure: str, *, log: bool) -> PairedDifference | None:
    seeds = [seed for seed, found in a.by_seed.items() if figure in found and figure in b.by_seed.get(seed, {})]
    if len(seeds) < 2:
        return None
    pairs = _without_rounding([(a.by_seed[seed][figure], b.by_seed[seed][figure]) for seed in seeds])
    if log:
        pairs = [(x, x if max(x, y) <= NOISE else y) for x, y in pairs]
        pairs = [(math.log(max(x, LEAST)), math.log(max(y, LEAST))) for x, y in pairs]
    apart = [y - x for x, y in pairs]
    found = estimate(apart)
    bounds = [math.exp(x) if log else x for x in found[1:]]
    tested = any(apart) and not _is_exact(apart, figure)
    p = paired_t(apart) if tested else float(not any(apart))  # the same in every run: no chance is involved
    signs = tested and _are_alike(apart)
    return PairedDifference(figure, a, b, len(seeds), bounds[0], bounds[1], bounds[2], p, tested=tested, by_signs=signs)


def _is_exact(apart: Sequence[float], figure: str) -> bool:
    """Return whether two points differ by their nature and not by chance, because they do so alike in every run.

    `apart` has the difference in each run (of logarithms, for a metric averaged by its logarithm); all must be equal,
    up to rounding. For a share, or a metric on test data, the result is false: two points may differ alike in a few
    runs by chance, because such metrics come from a limited number of examples.
    """
    if figure in EXACT:
        return len(set(apart)) == 1
    return _are_alike(apart) and figure not in PERCENT and not is_of_models(figure)


def _are_alike(apart: Sequence[float]) -> bool:
    return all(are_equal(x, apart[0]) for x in apart)


def are_equal(x: float | None, y: float | None) -> bool:
    """Return whether two values of a metric are equal up to rounding (`SAME`), or both are missing."""
    return x == y if x is None or y is None else math.isclose(x, y, rel_tol=SAME)


def _without_rounding(pairs: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the pairs of values with equal ones made the same: within a pair, or in all pairs."""
    alike = [(x, x if are_equal(x, y) else y) for x, y in pairs]
    first = alike[0]
    if all(are_equal(x, first[0]) and are_equal(y, first[1]) for x, y in alike):
        return [first] * len(alike)
    return alike


def paired_t(apart: Sequence[float]) -> float:
    """Return the two-sided p-value of Student's t-test of the hypothesis that the mean of these differences is 0.

    Where all n differences are equal up to rounding, their variance says nothing about chance, and the p-value is that
    of the sign test, 2^(1-n).
    """
    from scipy.special import stdtr

    count = len(apart)
    mean = math.fsum(apart) / count
    variance = math.fsum((x - mean) ** 2 for x in apart) / (count - 1)
    if mean == 0.0:
        return 1.0
    if _are_alike(apart):
        return float(2.0 ** (1 - count))
    return float(2 * stdtr(count - 1, -abs(mean) / math.sqrt(variance / count)))
