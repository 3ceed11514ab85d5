"""A sweep's table: on the terminal, in Markdown, CSV and LaTeX, with means, intervals and differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from netdfl.study.captions import DAGGER, DETAILS, LEGEND, TEST, bold_rule, caption_head, caption_start, column_notes
from netdfl.study.labels import heading_of, key_words
from netdfl.study.latex_text import NARROW, PAGE, broken, label_of, tex, width_of
from netdfl.study.number_text import decimals_of, number, probability, signed
from netdfl.study.outcome import PERCENT, SHARES, words
from netdfl.study.plots import name_of
from netdfl.study.rivals import NO_MARKS, RowMarks, differing, levels_of, marks_of
from netdfl.study.summary import (
    LEAST,
    NOISE,
    Estimate,
    GridPoint,
    PairedDifference,
    are_equal,
    deviation_of,
    differences,
    estimates,
    markdown_table,
    write_csv,
)
from netdfl.study.untimed import TIMED

MORE = frozenset({"test_accuracy", "mean_local_accuracy", "mean_personal_accuracy", "rounds_per_s", "rounds"})
LESS = frozenset({"test_loss", "train_loss", "error", "bytes_sent", "virtual_duration_s", "duration_s"})
"""MORE and LESS: metrics for which more, or less, is better, so that a table marks the best.

For other metrics nothing is marked. The consensus distance is not included, as a method that trains less in a round
keeps its models closer.
"""
COUNTED = {*SHARES, "bytes_sent", "rounds"}
"""Metrics that are often equal for different methods, so that equal ones do not show that two are the same."""
MOST_OPEN = 8
"""The most differences without significance that the terminal lists one by one."""


@dataclass(frozen=True)
class SweepTable:
    """The table of a sweep.

    Attributes:
        points: the points of the grid, one row each.
        names: the metrics, one column each.
        logs: the metrics that are averaged by their logarithm.
        warned: what a reader has to know before the figures, as sentences.
        untimed: the note on metrics of virtual time, if they do not compare methods fairly (`netdfl.study.untimed`).
        so_far: a sentence on how many runs the table covers, if others are still to come.
    """

    points: Sequence[GridPoint]
    names: Sequence[str]
    logs: frozenset[str]
    warned: Sequence[str] = ()
    untimed: str = ""
    so_far: str = ""

    def found(self, name: str) -> list[PairedDifference]:
        """Return the differences between points in the metric `name`, with the results of their tests."""
        return differences(self.points, name, log=name in self.logs)

    def best(self, name: str) -> set[int]:
        """Return the indices of the points that the column of the metric `name` marks, by the rule of `bold_rule`.

        If a point is marked, so are all points of its level that were compared with the best and have a better mean. A
        point with runs that did not pass is never marked: a fleet that dies early sends the fewest bytes.
        """
        return self._marks(name).best

    def not_compared(self, name: str) -> set[int]:
        """Return the indices of the points that were not compared with the best of their level, though others were."""
        return self._marks(name).unknown

    def _marks(self, name: str) -> RowMarks:
        if name not in MORE | LESS:
            return NO_MARKS
        means = {
            index: each.mean
            for index, (point, each) in enumerate(zip(self.points, self._estimates(name), strict=True))
            if each is not None and not point.num_not_passed
        }
        shown = {index: number(name, mean, self._decimals.get(name)) for index, mean in means.items()}
        found = self.found(name)
        ranked = sorted(means, key=lambda index: means[index], reverse=name in MORE)
        levels = [[index for index in ranked if index in level] for level in levels_of(self.points)]
        rivals = [level for level in levels if len(level) > 1]
        told = [marks_of(level, shown, differing(self.points, level[0], found)) for level in rivals]
        return RowMarks({i for each in told for i in each.best}, {i for each in told for i in each.unknown})

    def markdown(self, title: str = "") -> str:
        """Return the table in Markdown, with its legend and the differences, below the `title` if there is one."""
        rows = ([*label, *cells] for label, cells in self._rows(_in_markdown, "**{}**", " †"))
        table = markdown_table([*self._varied(), "runs", *map(words, self.names)], rows)
        lines = [self._sentence(each) for name in self.names for each in self.found(name)]
        pairs = "\n".join(f"- {line}" for line in lines) or "No two points share two seeds, so nothing is compared."
        same = "".join(f"- {line}\n" for line in self.alike())
        bold = [f"{bold_rule(self.points)} {DETAILS}."] if self._has_bold() else []
        notes = "".join(f"{line}\n" for line in [*bold, *self._notes()])
        warned = "".join(f"- {each}\n" for each in self.warned)
        head = f"{self.so_far}\n\n" if self.so_far else ""
        head += f"# {title}\n\n" if title else ""
        head += f"Before the figures:\n\n{warned}\n" if warned else ""
        return f"{head}{table}\n{LEGEND}\n{notes}\n## Which differences hold\n\n{TEST}.\n\n{same}{pairs}\n"

    def _has_bold(self) -> bool:
        """Return whether the table marks anything."""
        return any(self.best(name) for name in self.names)

    def alike(self) -> list[str]:
        """Return a sentence for every two points whose metrics are equal for every seed: probably one method."""
        pairs = [(a, b) for a, b in combinations(self.points, 2) if self._equal(a, b)]
        return [
            f"{called(b)} and {called(a)} are equal in every figure of the table, seed by seed: what is set for both "
            "may make them the same"
            for a, b in pairs
        ]

    def _equal(self, a: GridPoint, b: GridPoint) -> bool:
        seeds = a.by_seed.keys() & b.by_seed.keys()
        measured = [name for name in self.names if name not in COUNTED and any(name in a.by_seed[s] for s in seeds)]
        return bool(measured) and all(
            are_equal(a.by_seed[seed].get(name), b.by_seed[seed].get(name)) for seed in seeds for name in self.names
        )

    def latex(self, name: str, title: str = "") -> str:
        r"""Return the table in LaTeX (`booktabs`), with the best points in bold and `title` or `name` in its caption.

        `\ref` finds it by its name. The caption is short, and has the metrics whose cells are equal in
        all rows in place of their columns. A comment above the table has the whole rules, and a line below it explains
        columns.
        """
        equal = {each: shown for each in self.names if (shown := self._shown_in_all(each))}
        kept = [each for each in self.names if each not in equal] or self.names
        table = self if len(kept) == len(self.names) else replace(self, names=kept)
        alike = [f"{words(each)}: {shown}" for each, shown in equal.items() if each not in kept]
        said = [f"The same in all rows: {'; '.join(alike)}."] * bool(alike)
        return table._latex(caption_head(kept, name, title), label_of(name), said, self._about_time())

    def _shown_in_all(self, name: str) -> str:
        """Return the mean of the metric `name` as text if there are several rows, which all show the same; else ""."""
        found = zip(self.points, self._estimates(name), strict=True)
        parts = {(*self._parts(point, name, each), of_fewer(point, each)) for point, each in found}
        mean, _, _, few = parts.pop() if len(parts) == 1 < len(self.points) else ("",) * 4
        return mean + few

    def _latex(self, head: str, label: str, said: Sequence[str], notes: Sequence[str]) -> str:
        """Return the table in LaTeX with the sentences `said` in its caption, and `notes` below it."""
        body = "".join(f"  {row} \\\\\n" for row in self._tex_rows())
        counted = [] if self._same_runs() else ["runs"]
        headings = [*self._varied_words(), *counted, *map(words, self.names)]
        columns = "l" * len(self._varied()) + "r" * len([*counted, *self.names])
        left_out = 0 if counted else 1  # the number of runs comes first
        rows = ([*label, *cells[left_out:]] for label, cells in self._rows(_in_markdown, "{}", " †"))
        narrow = width_of(headings, rows) > PAGE
        heading = " & ".join(broken(*each) if narrow else tex(each[0]) for each in zip(headings, columns, strict=True))
        bold = [bold_rule(self.points)] if self._has_bold() else []
        rules = "".join(f"% {line}.\n" for line in (DETAILS, TEST) if bold)
        before = [*[self.so_far] * bool(self.so_far), *self.warned]
        rules = "".join(f"% Before you print it: {line}\n" for line in before) + rules
        below = tex(" ".join([*self._notes(), *notes]))
        end = f"  \\par\\smallskip {{\\footnotesize {below}}}\n" if below else ""
        return (
            f"% \\usepackage{{booktabs}}\n{rules}\\begin{{table}}\n  \\centering\n"
            f"  \\caption{{{tex(' '.join([self._caption(head), *said, *bold]))}}}\n"
            f"  \\label{{tab:{label}}}\n{NARROW if narrow else ''}"
            f"  \\begin{{tabular}}{{{columns}}}\n  \\toprule\n  {heading} \\\\\n  \\midrule\n"
            f"{body}  \\bottomrule\n  \\end{{tabular}}\n{end}\\end{{table}}\n"
        )

    def _caption(self, head: str) -> str:
        """Return the first sentence of the caption: its `head`, what is printed, and over how many seeds."""
        found = [(point, name, self._estimates(name)[i]) for i, point in enumerate(self.points) for name in self.names]
        counts = self._counts()
        seeds = " to ".join(map(str, sorted({min(counts), max(counts)})))
        parts = [self._parts(*each) for each in found]
        deviation, interval = any(each[1] for each in parts), any(each[2] for each in parts)
        return caption_start(head, seeds, deviation=deviation, interval=interval)

    def _about_time(self) -> list[str]:
        """Return the note on metrics of virtual time as a sentence, if the table has some of them."""
        return [f"{self.untimed[0].upper()}{self.untimed[1:]}."] if self.untimed and TIMED & {*self.names} else []

    def _counts(self) -> set[int]:
        """Return the numbers of runs behind the table's means."""
        found = [each for name in self.names for each in self._estimates(name)]
        return {each.cells for each in found if each is not None} or {0}

    def _same_runs(self) -> bool:
        """Return whether all means cover equally many runs, which all passed: then only the caption has the number."""
        return len(self._counts()) == 1 and not any(each.num_failed or each.num_not_passed for each in self.points)

    def _tex_rows(self) -> Iterator[str]:
        """Yield the row of each point for LaTeX, followed by one with the intervals of its means if there are some."""
        left_out = 1 if self._same_runs() else 0  # the number of runs comes first
        for index, (label, cells) in enumerate(self._rows(_in_tex, "\\textbf{{{}}}", "$^\\dagger$")):
            yield " & ".join([*map(tex, label), *cells[left_out:]])
            point = self.points[index]
            found = [self._parts(point, name, self._estimates(name)[index])[2] for name in self.names]
            if any(found):
                below = (f"{{\\footnotesize ({tex(each)})}}" if each else "" for each in found)
                yield " & ".join([*("" for _ in label), *[""] * (1 - left_out), *below])

    def write_differences(self, path: Path) -> None:
        """Write a CSV file with a row for each metric and each tested pair of points."""
        head = ["figure", "first", "second", "seeds", "difference", "low", "high", "p", "p_holm", "holds"]
        rows: list[Sequence[object]] = [head]
        for each in (each for name in self.names for each in self.found(name)):
            ends = [called(each.first), called(each.second)]
            probabilities = [each.p, each.p_holm] if each.tested else ["", ""]
            rows.append([each.figure, *ends, each.seeds, each.mean, each.low, each.high, *probabilities, each.holds])
        write_csv(path, rows)

    def show(self, title: str, console: Console) -> None:
        """Print one table for each metric, and below it the differences."""
        for line in self.alike():
            console.print(f"note: {line}", markup=False, highlight=False)
        for name in self.names:
            table = Table(title=f"{title}: {words(name)}", title_justify="left", box=box.SIMPLE_HEAD)
            for heading in ("", "runs", "mean", "deviation", "95 % interval"):
                table.add_column(heading, overflow="fold", justify="left" if not heading else "right")
            for point, found in zip(self.points, self._estimates(name), strict=True):
                mean, *spread = self._parts(point, name, found)
                table.add_row(called(point), runs(point), mean + of_fewer(point, found), *spread)
            console.print(table)
            for line in self._told(name):
                console.print(line, markup=False, highlight=False)

    def _told(self, name: str) -> list[str]:
        """Return a sentence for each significant difference in a metric, then sentences about the others.

        If there are more than `MOST_OPEN` others, one sentence has their number and the largest of them.
        """
        found = self.found(name)
        equal = [each for each in found if not each.tested and not each.holds]
        others = [each for each in found if each.tested and not each.holds]
        lines = [self._sentence(each) for each in found if each.holds]
        if len(others) <= MOST_OPEN:
            lines += map(self._sentence, others)
        else:
            largest = max(others, key=self._extent)
            size = f"the largest is {self._size(largest)}, {_probability(largest)}"
            lines.append(f"{words(name)}: {len(others)} differences do not hold; {size}")
        if len(equal) <= MOST_OPEN:
            lines += map(self._sentence, equal)
        else:
            lines.append(f"{words(name)}: {len(equal)} pairs are the same for every seed, and not counted")
        if any(self._seems_to_hold(each) for each in others):
            lines.append(
                f"an interval is that of its pair alone; p is corrected for {others[0].comparisons} comparisons"
            )
        return lines

    def _extent(self, each: PairedDifference) -> float:
        """Return the absolute size of a difference; of the log ratio for a metric that is averaged by its logarithm."""
        return abs(math.log(max(each.mean, LEAST))) if each.figure in self.logs else abs(each.mean)

    def _seems_to_hold(self, each: PairedDifference) -> bool:
        """Return whether the printed interval of a difference without significance excludes 0, or a ratio of 1."""
        none = 1.0 if each.figure in self.logs else 0.0
        return not self._noise(each) and not each.low <= none <= each.high

    def _estimates(self, name: str) -> list[Estimate | None]:
        return [estimates(point, name, log=name in self.logs) for point in self.points]

    def _varied(self) -> list[str]:
        """Return the headings of the columns that tell points apart: the case, if points have one, and varied keys."""
        names = [heading_of(name) for name, _ in self.points[0].values] if self.points else []
        return [*(["case"] if any(point.case for point in self.points) or not names else []), *names]

    def _varied_words(self) -> list[str]:
        """Return the headings of `_varied` in words."""
        paths = [path for path, _ in self.points[0].values] if self.points else []
        return [*(["case"] if "case" in self._varied() else []), *(key_words(path, paths) for path in paths)]

    def _label(self, point: GridPoint) -> list[str]:
        values = [value for _, value in point.values]
        return [point.case or "-", *values] if "case" in self._varied() else values

    def _rows(self, write: Callable[[str, str, str], str], *marks: str) -> Iterator[tuple[list[str], list[str]]]:
        """Yield each point's label, and its row: the number of runs, and each metric as formatted by `write`.

        `marks` are the format of the best values, and the suffix of values that were not compared with the best.
        """
        bold, unknown = marks
        told = {name: self._marks(name) for name in self.names}
        for index, point in enumerate(self.points):
            found = {name: self._estimates(name)[index] for name in self.names}
            cells = [
                (name, write(*self._parts(point, name, each)) + of_fewer(point, each)) for name, each in found.items()
            ]
            marked = [bold.format(cell) if index in told[name].best else cell for name, cell in cells]
            shown = [cell + unknown * (index in told[name].unknown) for name, cell in zip(told, marked, strict=True)]
            yield self._label(point), [runs(point), *shown]

    def _parts(self, point: GridPoint, name: str, found: Estimate | None) -> tuple[str, str, str]:
        """Return the mean, deviation and interval of the metric `name` at a point, as text.

        `found` is its estimate.
        """
        if found is None:
            return "-", "", ""
        decimals, spread = self._decimals.get(name), deviation_of(point, name)
        mean, low, high = (number(name, x, decimals) for x in (found.mean, found.low, found.high))
        if mean == low == high:  # the same in every run, up to what is shown, or a single run
            return mean, "", ""
        deviation = "" if spread is None or name in self.logs else number(name, spread, decimals)
        return mean, deviation, f"{low} to {high}"

    @cached_property
    def _decimals(self) -> Mapping[str, int | None]:
        """How many decimals the numbers in the column of each metric have; None if each has its own."""
        found: dict[str, int | None] = {}
        for name in self.names:
            means = [each.mean for each in self._estimates(name) if each is not None]
            spreads = [] if name in self.logs else [deviation_of(point, name) or 0.0 for point in self.points]
            found[name] = decimals_of(name, means, spreads)
        return found

    def _notes(self) -> list[str]:
        """Return the sentences below the table that explain single columns and marks."""
        return [*column_notes(self.names, self.logs), *[DAGGER] * any(map(self.not_compared, self.names))]

    def _sentence(self, each: PairedDifference) -> str:
        """Return the difference between two points in a metric, and whether it is significant, as a sentence."""
        if not each.tested and not each.holds:
            pair = f"{called(each.second)} and {called(each.first)}"
            alike = "rounding noise in both" if self._noise(each) else "the same for every seed"
            return f"{words(each.figure)}, {pair}: {alike}, not tested"
        what = f"{words(each.figure)}, {self._size(each)}"
        if not each.tested:
            return f"{what} in every run"
        return f"{what}, {_probability(each)}: {'holds' if each.holds else 'does not hold'}"

    def _size(self, each: PairedDifference) -> str:
        """Return the names of two points and their difference as text, with its interval if it was tested."""
        is_log = each.figure in self.logs
        mean, low, high = (f"{x:.4g}" if is_log else signed(each.figure, x) for x in (each.mean, each.low, each.high))
        unit = " times as much" if is_log else " points" if each.figure in PERCENT else ""
        interval = f" ({low} to {high})" if each.tested else ""
        size = self._noise(each) or f"{mean}{unit}{interval}"
        return f"{called(each.second)} against {called(each.first)}: {size}"

    def _noise(self, each: PairedDifference) -> str:
        """Return both means as text if one is no more than rounding, so that their ratio says nothing; else ""."""
        found = [estimates(point, each.figure, log=True) for point in (each.second, each.first)]
        means = [one.mean for one in found if one is not None]
        if each.figure not in self.logs or min(means) > NOISE:
            return ""
        return " against ".join(number(each.figure, x) + " (rounding noise)" * (x <= NOISE) for x in means)


def _probability(each: PairedDifference) -> str:
    """Return the p-value as text, with the corrected one if there are several comparisons."""
    signs = " by the signs alone" * each.by_signs
    several = f", corrected for {each.comparisons} comparisons {probability(each.p_holm)}"
    return f"p {probability(each.p)}{signs}{several * (each.comparisons > 1)}"


def _in_markdown(mean: str, deviation: str, interval: str) -> str:
    return mean + (f" ± {deviation}" if deviation else "") + (f" ({interval})" if interval else "")


def _in_tex(mean: str, deviation: str, interval: str) -> str:
    return tex(mean) + (f" $\\pm$ {tex(deviation)}" if deviation else "")


def called(point: GridPoint) -> str:
    """Return the name of a point of the grid, made of its case and varied values."""
    return name_of(point.case, point.values) or "all"


def runs(point: GridPoint) -> str:
    """Return the number of a point's runs, with those that failed and those that did not pass, as text."""
    counts = {"failed": point.num_failed, "did not pass": point.num_not_passed}
    told = ", ".join(f"{num} {what}" for what, num in counts.items() if num)
    return f"{point.num_runs} ({told})" if told else f"{point.num_runs}"


def of_fewer(point: GridPoint, found: Estimate | None) -> str:
    """Return the number of runs that a point's estimate covers, as text, if other runs of the point lack the metric."""
    if found is None or found.cells == point.num_runs:
        return ""
    return f" (of {found.cells} run{'s' * (found.cells > 1)})"
