"""The blame of a run: a table of what each candidate cost, and a minimal set that explains nine tenths of the gap."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from netdfl.blame.candidates import Candidate
from netdfl.blame.outcome import PlayOutcome
from netdfl.blame.player import CounterfactualPlayer
from netdfl.blame.targets import BlameTarget
from netdfl.core.errors import InputError
from netdfl.explore.shrink import minimize

SET_RUNS = 200
MOST_CANDIDATES = 200
TENTHS = 9
"""How many tenths of the gap a set is to explain."""


@dataclass(frozen=True)
class BlameRow:
    """A candidate, and the outcome of the run without it; None where it could not be played: `why`."""

    candidate: Candidate
    outcome: PlayOutcome | None
    why: str = ""


@dataclass
class Blame:
    """The findings about a run so far.

    `bare` is the run without any candidate. `found` is the set: None where there is no gap, or before it was sought.
    It is `minimal` where no member can be left out. `left` counts candidates without a run of their own.
    """

    target: BlameTarget
    base: PlayOutcome
    candidates: Sequence[Candidate]
    bare: PlayOutcome | None = None
    rows: list[BlameRow] = field(default_factory=list)
    left: int = 0
    found: Sequence[Candidate] | None = None
    without: PlayOutcome | None = None
    minimal: bool = False
    set_runs: int = 0

    def gain(self, outcome: PlayOutcome | None) -> float | None:
        """Return what an outcome is better by; None where a target was not reached that the run reached, or either.

        Where the run itself did not reach the target, its end counts for it: it took longer than that.
        """
        before = self.target.cost(self.base)
        after = None if outcome is None else self.target.cost(outcome)
        if after is None:
            return None
        return (self.base.end_ns if before is None else before) - after

    @property
    def gap(self) -> float | None:
        """The gain of the run without any candidate; None where it does not reach the target."""
        return self.gain(self.bare)

    def explains(self, outcome: PlayOutcome) -> bool:
        """Whether an outcome is better by nine tenths of the gap."""
        gain, gap = self.gain(outcome), self.gap
        return gain is not None and gap is not None and 10 * (gap - gain) <= (10 - TENTHS) * abs(gap)

    @property
    def _first(self) -> bool:
        """Whether reaching the target at all is a gain."""
        return self.target.cost(self.base) is None

    @property
    def has_gap(self) -> bool:
        """Whether the run without any candidate is better."""
        return self.gap is not None and (self._first or self.gap > 0)

    def ordered(self) -> list[BlameRow]:
        """Return the rows by gain, those that don't reach the target last."""
        return sorted(self.rows, key=lambda row: inf if (gain := self.gain(row.outcome)) is None else -gain)

    def alone(self, candidate: Candidate) -> float | None:
        """Return the gain of a candidate by itself; None where it has no row, or does not reach the target."""
        row = next((row for row in self.rows if row.candidate == candidate), None)
        return None if row is None else self.gain(row.outcome)


Show = Callable[[str, int, int], None]
"""Takes what is played now, how many plays of that are done, and of how many at most."""


class SetBudgetSpent(Exception):
    """Raised when the search for the set has made all its runs."""


def fill(blame: Blame, player: CounterfactualPlayer, likely: Sequence[Candidate], show: Show) -> None:
    """Play the run without any candidate, then without each one of `likely`."""
    blame.left = len(blame.candidates) - len(likely)
    show("without any candidate", 0, 1)
    blame.bare = player.play(blame.candidates)
    for number, candidate in enumerate(likely):
        show("without each candidate", number, len(likely))
        try:
            blame.rows.append(BlameRow(candidate, player.play([candidate])))
        except InputError as error:
            blame.rows.append(BlameRow(candidate, None, str(error)))


def find_set(blame: Blame, player: CounterfactualPlayer, show: Show, most: int = SET_RUNS) -> None:
    """Find a minimal set of candidates that explains nine tenths of the gap, within `most` runs."""
    if not blame.has_gap:
        return
    search = _SetSearch(blame, player, show, most)
    try:
        blame.minimal = True
        blame.found = minimize(search.begin(), search.holds)
    except SetBudgetSpent:
        blame.minimal, blame.found = False, search.best
    blame.found = [each for each in _by_gain(blame) if each in blame.found]
    blame.without = player.play(blame.found)


class _SetSearch:
    def __init__(self, blame: Blame, player: CounterfactualPlayer, show: Show, most: int) -> None:
        self._blame, self._player, self._show, self._most = blame, player, show, most
        self.best: Sequence[Candidate] = blame.candidates

    def begin(self) -> Sequence[Candidate]:
        """Return the first few candidates by gain that explain enough, twice as many each time."""
        ordered = _by_gain(self._blame)
        return next((few for few in _doubled(ordered) if self.holds(few)), ordered)

    def holds(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether the run without `candidates` explains enough."""
        if not candidates:
            return False
        if not self._player.known(candidates):
            if self._blame.set_runs >= self._most:
                raise SetBudgetSpent
            self._blame.set_runs += 1
            self._show("for the set", self._blame.set_runs, self._most)
        try:
            explains = self._blame.explains(self._player.play(candidates))
        except InputError:
            return False
        if explains and len(candidates) <= len(self.best):
            self.best = candidates
        return explains


def _doubled(ordered: Sequence[Candidate]) -> Iterator[Sequence[Candidate]]:
    size = 1
    while size < len(ordered):
        yield ordered[:size]
        size *= 2


def _by_gain(blame: Blame) -> Sequence[Candidate]:
    """Return all candidates: those with a row by gain, then the others."""
    first = [row.candidate for row in blame.ordered()]
    tabled: Collection[Candidate] = set(first)
    return [*first, *(each for each in blame.candidates if each not in tabled)]
