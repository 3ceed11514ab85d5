"""The causes by which explored runs fail: runs with the same bug have the same cause, whichever nodes are involved.

A run fails by its verdict, or by a user's predicate over the run.
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
from netdfl.diagnosis.why import NEVER_SENT, ReasonKind
from netdfl.explore.execute import ExploredRun
from netdfl.record.judge import WELL
from netdfl.scenario.model.plugins import find_own
from netdfl.scenario.model.schema import Scenario

_NETDFL = Path(__file__).resolve().parents[1]


class FailureCause(NamedTuple):
    """The cause by which a run failed.

    Attributes:
        key: the cause as a short text; equal failures have equal keys.
        text: a sentence about this occurrence.
        variant: why a stalled node's messages are missing, as in `lost:scripted+returned_past`; empty if no stall.
        round: the round of this occurrence; -1: no particular one.
    """

    key: str
    text: str
    variant: str = ""
    round: int = -1


def cause_of(run: ExploredRun, predicates: Sequence[Predicate] = (), *, verdict: bool = True) -> FailureCause | None:
    """Return the cause by which `run` failed; None if it did not fail.

    A run fails if netdfl itself broke, if a user's predicate holds or raises, or, with `verdict`, by a bad verdict.
    """
    if run.error is not None:
        return _broken(run.error)
    for predicate in predicates:
        try:
            if told := predicate(run):
                return FailureCause(f"predicate {predicate.name}: {_plain(told)}", told)
        except PredicateError as error:
            return FailureCause(f"raised {predicate.name}", str(error))
    if not verdict or run.verdict in WELL:
        return None
    return _stall(run) or _unmet(run)


def is_raised(cause: FailureCause) -> bool:
    """Return whether the cause is an error that a user's predicate raised."""
    return cause.key.startswith("raised ")


def _broken(error: BaseException) -> FailureCause:
    """Return the cause of a run that an exception ended.

    The cause's key names the line of the user's own code that raised the exception, else netdfl's innermost function.
    """
    if (told := error if isinstance(error, OwnCodeError) else theirs(error)) is not None:
        raised = told.__cause__ or told
        return FailureCause(f"own code {type(raised).__name__} {own_place(raised) or _plain(said(raised))}", str(told))
    frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(_NETDFL)]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}" if frames else "outside netdfl"
    return FailureCause(f"broke {type(error).__name__} {where}", f"netdfl itself broke in {where}: {error!r}")


STALL = "stall "
"""The prefix of the keys of causes that are stalls."""
_KINDS: Mapping[ReasonKind, str] = {
    **dict.fromkeys(NEVER_SENT, "never_sent"),
    ReasonKind.UNKNOWN_SENDERS: "unknown_senders",
    **dict.fromkeys((ReasonKind.RECEIVER_DOWN, ReasonKind.RECEIVER_RESTARTED), "receiver_down"),
}
"""Reasons for missing messages, each with the name of its group: one remedy helps against all reasons of a group.

A reason without a group keeps its own name.
"""


def is_stall(key: str) -> bool:
    """Return whether a cause's key names a stall."""
    return key.startswith(STALL)


def _stall(run: ExploredRun) -> FailureCause | None:
    """Return the cause of the most serious stall that did not end and that the scenario's `expect` does not allow.

    None if the run has no such stall.

    Permanent stalls come before others. Which nodes stalled, how many, in which round and on which link, is not part of
    the cause.
    """
    expect = run.scenario.expect.entries()
    left = [stall for stall in run.stalls if not stall.over and expect.get(_entry(stall), "none") == "none"]
    if not left:
        return None
    first = min(left, key=lambda stall: (not stall.permanent, stall.began_ns, stall.round, stall.roots))
    whys = sorted({reason.why for reason in first.grounds.reasons}, key=_gravity)
    kind = _KINDS.get(whys[0], whys[0].value) if whys else "outside"
    return FailureCause(f"{STALL}{first.cause.value} {kind}", first.what, _variant(first), first.round)


def _entry(stall: Finding) -> str:
    """Return the entry of the scenario's `expect` that allows or forbids this stall: `deadlock` or `stall`."""
    return "deadlock" if stall.cause is StallCause.DEADLOCK and not stall.suspected else "stall"


def _gravity(why: ReasonKind) -> tuple[int, str]:
    return FIRST.index(CAUSES[why]) if CAUSES[why] in FIRST else len(FIRST), why.value


def _variant(stall: Finding) -> str:
    """Return all reasons why a stall's messages are missing as one text, such as `lost:scripted+returned_past`."""
    reasons = stall.grounds.reasons
    said = {f"{r.why.value}:{r.loss}" if r.why is ReasonKind.LOST and r.loss else r.why.value for r in reasons}
    return "+".join(sorted(said)) or stall.cause.value


_LOSSES = {"scripted": "dropped by name", "loss": "lost at random", "down": "lost while a link was down"}
_WORDS: Mapping[str, str] = {
    ReasonKind.RECEIVER_DOWN: "lost as its receiver was down",
    ReasonKind.RECEIVER_RESTARTED: "taken by its receiver, which then crashed",
    ReasonKind.RETURNED_PAST: "its sender returned in a later round",
    ReasonKind.PAST: "its sender was past that round",
    ReasonKind.FINISHED: "its sender had finished",
    ReasonKind.TAKEN_FOR_GONE: "its sender took its receiver for gone",
    ReasonKind.WAITING: "its sender waited too",
}


def in_words(variant: str) -> str:
    """Return the reasons in `variant` why messages are missing in words, such as `dropped by name`."""
    return " and ".join(map(_in_words, variant.split("+")))


def _in_words(part: str) -> str:
    why, _, loss = part.partition(":")
    known = _LOSSES.get(loss, f"lost by {loss}") if loss else _WORDS.get(why, "")
    return known or why.replace("_", " ")


OF_VERDICT = "verdict "
DIED = f"{OF_VERDICT}died "
"""The key prefixes of failure causes: the first for bad verdicts in general, the second for a node that died."""


def is_of_words(key: str) -> bool:
    """Return whether a failure cause's key has the old format of netdfl 0.2.0, the whole text of a verdict."""
    return key.startswith(OF_VERDICT) and not key.startswith(DIED) and len(key.split()) > 2


def _unmet(run: ExploredRun) -> FailureCause:
    """Return the cause of a run with a bad verdict: the first entry of the scenario's `expect` that the run violated.

    For a node that died, the cause is its error message, with the numbers left out.
    """
    if not run.reasons:
        return FailureCause(f"{OF_VERDICT}unknown", "the verdict is unknown")
    entry, first = run.unmet[0], run.reasons[0]
    return FailureCause(
        f"{DIED}{_plain(first.partition(': ')[2])}" if entry == "died" else f"{OF_VERDICT}{entry}", first
    )


def _plain(text: str) -> str:
    """Return a sentence with each number, or list of numbers, replaced by the same placeholder."""
    plain = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?%?", "#", text)
    return re.sub(r"#((,? and |, |->)#)+", "#", plain)[:200]


VERDICT = "verdict"


@dataclass(frozen=True)
class Predicate:
    """A user's function `(run) -> bool | str`, which returns true, or a text, for a run that counts as failed."""

    name: str
    holds: Callable[[ExploredRun], object]

    def __call__(self, run: ExploredRun) -> str:
        """Return the predicate's text about `run`; empty if the run does not count as failed. Raises PredicateError."""
        try:
            found = self.holds(run)
        except Exception as error:
            raise PredicateError(self.name, error) from error
        if not found:
            return ""
        return found if isinstance(found, str) else f"{self.name} holds"


class PredicateError(Exception):
    """An error that a predicate raised."""

    def __init__(self, name: str, error: Exception) -> None:
        """Store the predicate's name and the line that raised `error`."""
        place = own_place(error) or _last_line(error)
        super().__init__(f"the predicate {name} raised {type(error).__name__} at {place}: {said(error)}")


def _last_line(error: BaseException) -> str:
    passed = traceback.extract_tb(error.__traceback__)
    return f"{passed[-1].filename}:{passed[-1].lineno}" if passed else "an unknown place"


def find_predicates(scenario: Scenario, names: Sequence[str] | None = None) -> list[Predicate]:
    """Return the user's predicates in `names`, by default those in the scenario's `explore.find`.

    Raises InputError if one can't be imported.
    """
    directory = str(scenario.folder)
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
