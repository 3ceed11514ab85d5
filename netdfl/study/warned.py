"""The warnings of a sweep's runs and the notices of their scenarios, each once, for a reader of the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell
from netdfl.study.plots import name_of

NOT_PASSED = "runs that did not pass are in the means, with their last values: fail or unknown"
"""The beginning of the sentence on runs that broke a rule or missed what their scenario expects."""
MOST_NAMED = 3
"""The most combinations that a sentence names."""


def warnings_of(ran: Sequence[CellResult]) -> list[str]:
    """Return a sentence on runs that did not pass, and one for each kind of warning in the results of runs.

    Each has the number of runs that warn, the combinations of values in which most runs warn, and the text of one run.
    """
    done = [each for each in ran if not each.failed]
    bad: dict[int, str] = {}
    texts: dict[str, dict[int, str]] = {}
    for place, each in enumerate(done):
        if each.not_passed:
            bad[place] = each.not_passed
        for told in (each.result or {}).get("warnings", ()):
            texts.setdefault(told["kind"], {}).setdefault(place, told["text"])
    return [_sentence(kind, found, done) for kind, found in {NOT_PASSED: bad, **texts}.items() if found]


def notices_of(noted: Iterable[tuple[Cell, Sequence[str]]]) -> tuple[list[str], list[str]]:
    """Return the notices of scenarios that concern all combinations, and those that concern some, with their names.

    `noted` has the notices of each cell. A notice that concerns only some combinations, such as another delivery, may
    make a comparison unfair.
    """
    names: dict[str, None] = {}
    texts: dict[str, dict[str, None]] = {}
    for cell, notices in noted:
        name = name_of(cell.case, cell.values)
        names.setdefault(name)
        for text in notices:
            texts.setdefault(text, {}).setdefault(name)
    common = [text for text, found in texts.items() if len(found) == len(names)]
    return common, [f"{_named(list(found))}: {text}" for text, found in texts.items() if len(found) < len(names)]


def _sentence(kind: str, texts: dict[int, str], done: Sequence[CellResult]) -> str:
    """Return the sentence on a kind of warning; `texts` has the words of runs that warn, by place in `done`."""
    groups: dict[str, list[int]] = {}
    for place, each in enumerate(done):
        groups.setdefault(name_of(each.cell.case, each.cell.values), []).append(place)
    shares = {name: sum(place in texts for place in places) / len(places) for name, places in groups.items()}
    most = [name for name, share in shares.items() if share == max(shares.values())]
    where = "" if len(most) == len(groups) else f", most in {_named(most)} ({max(shares.values()):.0%} of the runs)"
    example = next(texts[place] for place in groups[most[0]] if place in texts)
    return f"{kind} in {len(texts)} of {len(done)} runs{where}; one of them: {example}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return "; ".join(names[:MOST_NAMED]) + more
