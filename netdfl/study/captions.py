"""The words around a sweep's table: what its numbers are, what bold means, and how differences are tested."""

from __future__ import annotations

from collections.abc import Sequence

from netdfl.study.labels import key_words
from netdfl.study.outcome import words
from netdfl.study.rivals import rival_key
from netdfl.study.summary import LEVEL, GridPoint

TEST = (
    "Pairs that differ in one respect, by a paired two-sided t-test over the seeds that both have, corrected by Holm "
    f"over all tested pairs of a figure; a difference holds below {LEVEL:g}. An interval is that of its pair alone, "
    "without this correction. What is the same in both for every seed, up to rounding, or differs by the same for "
    "every seed, is not tested and not counted. A share or a figure on test data, of which a few runs may be alike by "
    "chance, is tested in the second case, by the signs alone: p is 2^(1-n) for n seeds"
)
SHORT_TEST = f"paired t-tests over the seeds, corrected by Holm, {LEVEL:g}"
DETAILS = (
    "What differs does so by the test of the differences, or in every run. Equal numbers are marked alike. Nothing is "
    "marked where all rows would be, where no two rows share two seeds, or where it is not known whether more is better"
)
DAGGER = (
    "† Not compared with the best, as the two share fewer than two seeds; neither bold nor plain says anything of it."
)
LEGEND = (
    "Mean ± standard deviation over runs with different seeds, and the 95 % confidence interval of the mean (Student's "
    "t, cut at 0 % and 100 %, and at 0 where a duration, bytes or rounds can't be less; of shares of runs Wilson's, "
    "without a deviation)."
)
MOST_NAMED = 3
"""The most metrics that a caption names."""


def bold_rule(points: Sequence[GridPoint]) -> str:
    """Return what bold means in the table of these points, as a sentence."""
    key = rival_key((point.case, point.values) for point in points)
    paths = [path for path, _ in points[0].values] if points else []
    others = [path for path in paths if path != key and len({dict(point.values)[path] for point in points}) > 1]
    named = " and ".join(key_words(path, paths) for path in others)
    level = f"for each {named} " if named else ""
    passed = " of the rows in which all runs passed" if any(point.num_not_passed for point in points) else ""
    shown = (
        f"the best mean{passed}, and the next ones down to the first that differs from it significantly ({SHORT_TEST})"
    )
    return f"Bold: {level}{shown}; none where all would be bold."


def caption_head(names: Sequence[str], name: str, title: str) -> str:
    """Return the beginning of a table's caption: the metrics `names`, and the `title` or, without one, the `name`."""
    told = " and ".join(filter(None, [", ".join(map(words, names[:-1])), *map(words, names[-1:])]))
    what = told[0].upper() + told[1:] if 0 < len(names) <= MOST_NAMED else "Results"
    return f"{title.rstrip('.')}. {what}" if title else f"{what} of {name}"


def caption_start(head: str, seeds: str, *, deviation: bool, interval: bool) -> str:
    """Return the first sentence of a table's caption: its `head`, and what is printed.

    `seeds` is the number of runs of a point as text, such as `2 to 3`. The sign ± is plain text, not LaTeX.
    """
    if seeds == "1":
        return f"{head}, one seed."
    below = ", below it the 95% confidence interval of the mean" if interval else ""
    return f"{head}: mean{' ± standard deviation' if deviation else ''} over {seeds} seeds{below}."


def column_notes(names: Sequence[str], logs: frozenset[str]) -> list[str]:
    """Return the sentences that explain single columns of a table; metrics in `logs` have geometric means."""
    of_logs = [words(name) for name in names if name in logs]
    geometric = f"Of {' and '.join(of_logs)} the mean is the geometric one, which has no standard deviation."
    average = "Test accuracy is that of the average model."
    return [average] * ("test_accuracy" in names) + [geometric] * bool(of_logs)
