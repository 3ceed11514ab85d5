"""The results of blame in words: the table by gain, the set of causes, and a sentence where effects don't add up."""

from __future__ import annotations

from collections.abc import Iterator

from netdfl.blame.blaming import Blame, BlameRow
from netdfl.blame.outcome import PlayOutcome
from netdfl.core.units import format_time

HEADING = ("without", "takes", "gain")
MOST_TOLD = 12
"""The most members of a set of causes that are named in a sentence; the scenario file names all."""


def table_of(blame: Blame) -> list[tuple[str, ...]]:
    """Return the lines of the table of possible causes, its heading first.

    If the target is the time until a metric reaches a value, a last column says how much earlier each rerun came to the
    round in which the run itself reached it.
    """
    reached = blame.target.reached(blame.base) if blame.target.figure and blame.target.is_time else None
    more = () if reached is None else (f"to round {reached.round}",)
    lines: list[tuple[str, ...]] = [(*HEADING, *more)]
    for row in blame.ordered():
        last = () if reached is None else (_to_round(blame, row, reached.round, reached.at_ns),)
        lines.append((row.candidate.text, _takes(blame, row.outcome, row.why), _gain(blame, row.outcome), *last))
    return lines


def order_of(blame: Blame, row: BlameRow) -> list[float | None]:
    """Return, for each column of the table, the number that stands for this row when the table is sorted by the column.

    None stands for a cell without a number.
    """
    reached = blame.target.reached(blame.base) if blame.target.figure and blame.target.is_time else None
    cost = None if row.outcome is None else blame.target.cost(row.outcome)
    found: list[float | None] = [None, cost, blame.gain(row.outcome)]
    if reached is not None:
        then = _at_round(blame, row, reached.round)
        found.append(None if then is None else reached.at_ns - then)
    return found


def sentences_of(blame: Blame) -> Iterator[str]:
    """Yield the sentences below the table of possible causes."""
    if blame.left:
        yield (
            f"{blame.left} more candidates have no run of their own: events and bottlenecks came first, then what took "
            "the most time of the critical path (--runs N plays more)"
        )
    yield f"without any candidate: {_takes(blame, blame.bare)} ({_gain(blame, blame.bare)})"
    drawn = max((row.outcome.drawn for row in blame.rows if row.outcome is not None), default=0)
    if drawn:
        yield (
            f"up to {drawn} messages of a play were not in the run, over links whose losses count: each was lost by a "
            "draw of its own, at the rule's mean"
        )
    yield from _of_the_set(blame)


def _of_the_set(blame: Blame) -> Iterator[str]:
    if not blame.has_gap:
        yield "no gap: nothing that could be taken out would have made it better"
        return
    if not blame.found or blame.without is None:
        return
    members = "; ".join(each.text for each in blame.found[:MOST_TOLD])
    if (more := len(blame.found) - MOST_TOLD) > 0:
        members += f"; and {more} more"
    takes = f"{_takes(blame, blame.without)}, {_gain(blame, blame.without)}"
    yield f"explains nine tenths of the gap: {members} (without {_them(blame)}: {takes})"
    if not blame.minimal:
        yield f"not minimal: all {blame.set_runs} runs for the set were made; --set-runs N allows more"
    elif len(blame.found) > 1:
        yield "none of these can be left out"
    if told := _not_added_up(blame):
        yield told


def _them(blame: Blame) -> str:
    return "it" if blame.found is not None and len(blame.found) == 1 else "them"


def _not_added_up(blame: Blame) -> str:
    """Return a sentence if the gains of single causes don't add up to the gain of the whole set; empty if they do.

    The gain of a single cause is the gain of the rerun in which only that cause is taken out.
    """
    found, whole = blame.found or (), blame.gain(blame.without)
    gains = [blame.alone(each) for each in found]
    if len(found) < 2 or whole is None:
        return ""
    alone = [gain for gain in gains if gain is not None]
    if blame.target.cost(blame.base) is None:
        return "" if alone else "Effects don't add up: without any one of these alone the target is not reached."
    if len(alone) < len(found) or sum(alone) == whole:
        return ""
    told = blame.target
    both = "both" if len(found) == 2 else f"all {len(found)}"
    if not any(alone):
        return f"Effects don't add up: one of these out gains nothing, {both} out gain {told.size(whole)}."
    each = told.size(sum(alone))
    return f"Effects don't add up: one by one these gain {each} in all, {both} together {told.size(whole)}."


def _takes(blame: Blame, outcome: PlayOutcome | None, why: str = "") -> str:
    if outcome is None:
        return f"can't be: {why}"
    cost = blame.target.cost(outcome)
    return f"not by {format_time(outcome.end_ns)}" if cost is None else blame.target.told(cost)


def _gain(blame: Blame, outcome: PlayOutcome | None) -> str:
    gain, before = blame.gain(outcome), blame.target.cost(blame.base)
    if gain is None:
        return "none" if before is None else "lost"
    if before is None:
        return f"reached; the run had not by {format_time(blame.base.end_ns)}"
    return blame.target.gain_told(gain, before)


def _to_round(blame: Blame, row: BlameRow, round: int, at_ns: int) -> str:
    """Return, as text, how much earlier the run without the row's candidate evaluated the target metric of `round`.

    In `round`, at `at_ns`, the run itself reached the target.
    """
    then = _at_round(blame, row, round)
    return "not by its end" if then is None else blame.target.gain_told(at_ns - then, at_ns)


def _at_round(blame: Blame, row: BlameRow, round: int) -> int | None:
    """Return when the run without the row's candidate evaluated the target metric of `round`, in nanoseconds.

    None if that run could not be made, or did not evaluate the metric in that round.
    """
    values = () if row.outcome is None else row.outcome.figures.get(blame.target.figure, ())
    return next((each.at_ns for each in values if each.round == round), None)
