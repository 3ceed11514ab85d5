"""What counts as found, and its cause, so that many runs with one bug are one finding, whichever nodes it hit.

Beside the verdict, predicates of one's own over a run say what counts.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from netdfl.core.errors import InputError, OwnCodeError
from netdfl.core.whose import own_place, said, theirs
from netdfl.diagnosis.finding import Cause as StallCause
from netdfl.diagnosis.finding import Finding
from netdfl.diagnosis.reasons import CAUSES, FIRST
from netdfl.diagnosis.why import NEVER_SENT, Why
from netdfl.explore.execute import ExploredRun
from netdfl.record.judge import WELL
from netdfl.scenario.model.plugins import find_own
from netdfl.scenario.model.schema import Scenario

_NETDFL = Path(__file__).resolve().parents[1]


class Cause(NamedTuple):
    """What is equal for equal failures: `key`; and what this one was, in a sentence.

    `variant` is how the cause looked in this run, `round` where it did; of no one round: -1.
    """

    key: str
    text: str
    variant: str = ""
    round: int = -1


def cause_of(run: ExploredRun, predicates: Sequence[Predicate] = (), *, verdict: bool = True) -> Cause | None:
    """Why `run` is a finding: it broke netdfl, a predicate holds or raises, or its verdict is none that ends well."""
    if run.error is not None:
        return _broken(run.error)
    for predicate in predicates:
        try:
            if told := predicate(run):
                return Cause(f"predicate {predicate.name}: {_plain(told)}", told)
        except PredicateError as error:
            return Cause(f"raised {predicate.name}", str(error))
    if not verdict or run.verdict in WELL:
        return None
    return _stall(run) or _unmet(run)


def is_raised(cause: Cause) -> bool:
    """Whether it is that a predicate raised."""
    return cause.key.startswith("raised ")


def _broken(error: BaseException) -> Cause:
    """By the exception, and where it was raised: a user's own line, or the innermost function of netdfl's it passed."""
    if (told := error if isinstance(error, OwnCodeError) else theirs(error)) is not None:
        raised = told.__cause__ or told
        return Cause(f"own code {type(raised).__name__} {own_place(raised) or _plain(said(raised))}", str(told))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_NETDFL)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside netdfl"
    return Cause(f"broke {type(error).__name__} {where}", f"netdfl itself broke in {where}: {error!r}")


STALL = "stall "
"""The keys of stalls begin so."""
_KINDS: Mapping[Why, str] = {
    **dict.fromkeys(NEVER_SENT, "never_sent"),
    Why.UNKNOWN_SENDERS: "unknown_senders",
    **dict.fromkeys((Why.RECEIVER_DOWN, Why.RECEIVER_RESTARTED), "receiver_down"),
}
"""Reasons that are one kind of failure: the same would end them. Each other one is a kind of its own."""


def is_stall(key: str) -> bool:
    """Whether a cause is that a fleet stands still."""
    return key.startswith(STALL)


def _stall(run: ExploredRun) -> Cause | None:
    """By the gravest reason of the first stall that is left, for good where one is, and that the scenario expects not.

    Not by which nodes it is, how many, in which round or on which link.
    """
    expect = run.scenario.expect.entries()
    left = [stall for stall in run.stalls if not stall.over and expect.get(_entry(stall), "none") == "none"]
    if not left:
        return None
    first = min(left, key=lambda stall: (not stall.permanent, stall.began_ns, stall.round, stall.roots))
    whys = sorted({reason.why for reason in first.grounds.reasons}, key=_gravity)
    kind = _KINDS.get(whys[0], whys[0].value) if whys else "outside"
    return Cause(f"{STALL}{first.cause.value} {kind}", first.what, _variant(first), first.round)


def _entry(stall: Finding) -> str:
    """The entry of `expect` that is about it."""
    return "deadlock" if stall.cause is StallCause.DEADLOCK and not stall.suspected else "stall"


def _gravity(why: Why) -> tuple[int, str]:
    return FIRST.index(CAUSES[why]) if CAUSES[why] in FIRST else len(FIRST), why.value


def _variant(stall: Finding) -> str:
    """All its reasons, as `lost:scripted+returned_past`."""
    reasons = stall.grounds.reasons
    said = {f"{r.why.value}:{r.loss}" if r.why is Why.LOST and r.loss else r.why.value for r in reasons}
    return "+".join(sorted(said)) or stall.cause.value


_LOSSES = {"scripted": "dropped by name", "loss": "lost at random", "down": "lost while a link was down"}
_WORDS = {
    Why.RECEIVER_DOWN: "lost as its receiver was down",
    Why.RECEIVER_RESTARTED: "taken by its receiver, which then crashed",
    Why.RETURNED_PAST: "its sender returned in a later round",
    Why.PAST: "its sender was past that round",
    Why.FINISHED: "its sender had finished",
    Why.TAKEN_FOR_GONE: "its sender took its receiver for gone",
    Why.WAITING: "its sender waited too",
}


def in_words(variant: str) -> str:
    """`a message dropped by name`, and what was there besides."""
    return " and ".join(map(_in_words, variant.split("+")))


def _in_words(part: str) -> str:
    why, _, loss = part.partition(":")
    known = _LOSSES.get(loss, f"lost by {loss}") if loss else next((_WORDS[w] for w in _WORDS if w == why), "")
    return known or why.replace("_", " ")


OF_VERDICT = "verdict "
DIED = f"{OF_VERDICT}died "
"""The keys of what the verdict says begin so, and those of a node's death."""


def is_of_words(key: str) -> bool:
    """Whether a key goes by the words of a verdict, as those of netdfl 0.2.0 did."""
    return key.startswith(OF_VERDICT) and not key.startswith(DIED) and len(key.split()) > 2


def _unmet(run: ExploredRun) -> Cause:
    """By the entry of `expect` that the gravest reason, the first, is about; a death by its error, without numbers."""
    if not run.reasons:
        return Cause(f"{OF_VERDICT}unknown", "the verdict is unknown")
    entry, first = run.unmet[0], run.reasons[0]
    return Cause(f"{DIED}{_plain(first.partition(': ')[2])}" if entry == "died" else f"{OF_VERDICT}{entry}", first)


def _plain(text: str) -> str:
    """A sentence without its numbers, lists of numbers as one."""
    plain = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?", "#", text)
    return re.sub(r"#((,? and |, |->)#)+", "#", plain)[:200]


VERDICT = "verdict"


@dataclass(frozen=True)
class Predicate:
    """A callable `(run) -> bool | str`: true, or in words, where a run is what is looked for."""

    name: str
    holds: Callable[[ExploredRun], object]

    def __call__(self, run: ExploredRun) -> str:
        """What it says of `run`; empty where it does not hold. Raises PredicateError."""
        try:
            found = self.holds(run)
        except Exception as error:
            raise PredicateError(self.name, error) from error
        if not found:
            return ""
        return found if isinstance(found, str) else f"{self.name} holds"


class PredicateError(Exception):
    """A predicate raised."""

    def __init__(self, name: str, error: Exception) -> None:
        """Name the line of `error`."""
        place = own_place(error) or _last_line(error)
        super().__init__(f"the predicate {name} raised {type(error).__name__} at {place}: {said(error)}")


def _last_line(error: BaseException) -> str:
    passed = traceback.extract_tb(error.__traceback__)
    return f"{passed[-1].filename}:{passed[-1].lineno}" if passed else "an unknown place"


def find_predicates(scenario: Scenario, names: Sequence[str] | None = None) -> list[Predicate]:
    """The predicates of the scenario's `explore.find`. Raises InputError where one is not to be found."""
    directory = str(scenario.file.parent) if scenario.file is not None else "."
    return [_find(name, directory) for name in names or scenario.explore.find if name != VERDICT]


def _find(name: str, directory: str) -> Predicate:
    if ":" not in name:
        raise InputError(f"explore.find: {name!r} is no predicate; write {VERDICT}, or package.module:callable")
    try:
        found = find_own(name, directory)
    except Exception as error:
        place = own_place(error)
        where = f" at {place}" if place else ""
        raise InputError(f"explore.find: {name} can't be imported{where}: {said(error) or error!r}") from error
    if not callable(found):
        raise InputError(f"explore.find: {name} is a {type(found).__name__}; name a callable that takes a run")
    return Predicate(name, found)
