"""Find what cost a run its time, bytes or accuracy: the gain without each possible cause, and a minimal set of causes.

The gap is the gain of the run without all of the possible causes. The set that is sought explains nine tenths of it.
"""

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
"""How many tenths of the gap, the gain without any possible cause, a set of causes must explain."""


@dataclass(frozen=True)
class BlameRow:
    """A possible cause of a run's cost (a candidate), with the outcome of a rerun without it.

    Attributes:
        candidate: the possible cause that was taken out.
        outcome: the outcome without it; None if that rerun could not be made.
        why: the reason, if the rerun could not be made; else empty.
    """

    candidate: Candidate
    outcome: PlayOutcome | None
    why: str = ""


@dataclass
class Blame:
    """The results so far of the search for what cost a run its time, bytes or accuracy.

    Attributes:
        target: the quantity by which runs are compared.
        base: the outcome of the run itself.
        candidates: all possible causes.
        bare: the outcome of the rerun without any of them; None before it is made.
        rows: the candidates that were each taken out in a rerun of its own, with the outcomes.
        left: the number of candidates that got no rerun of their own.
        found: the set of candidates that explains nine tenths of the gain of `bare`; None without a gain, or before the
            search.
        without: the outcome of the rerun without the set `found`.
        minimal: whether no member of the set can be left out of it.
        set_runs: the number of runs made in the search for the set.
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
        """Return how much better the `outcome` of a rerun without some possible causes is than the run itself.

        The result is in the unit of `target`; None if the rerun misses the target. If the run itself missed it, the
        time of the run's end counts as its cost.
        """
        before = self.target.cost(self.base)
        after = None if outcome is None else self.target.cost(outcome)
        if after is None:
            return None
        return (self.base.end_ns if before is None else before) - after

    @property
    def gap(self) -> float | None:
        """The gain of the rerun without any possible cause; None if that rerun misses the target."""
        return self.gain(self.bare)

    def explains(self, outcome: PlayOutcome) -> bool:
        """Return whether a rerun's `outcome` gains at least nine tenths of the gain without any possible cause."""
        gain, gap = self.gain(outcome), self.gap
        return gain is not None and gap is not None and 10 * (gap - gain) <= (10 - TENTHS) * abs(gap)

    @property
    def _first(self) -> bool:
        """Whether the run itself missed the target, so that any rerun that reaches it is better."""
        return self.target.cost(self.base) is None

    @property
    def has_gap(self) -> bool:
        """Whether the rerun without any possible cause is better than the run itself."""
        return self.gap is not None and (self._first or self.gap > 0)

    def ordered(self) -> list[BlameRow]:
        """Return possible causes with their reruns, the largest gain first; reruns that missed the target come last."""
        return sorted(self.rows, key=lambda row: inf if (gain := self.gain(row.outcome)) is None else -gain)

    def alone(self, candidate: Candidate) -> float | None:
        """Return the gain of the rerun in which only `candidate` is taken out.

        None means that no such rerun was made, or that it misses the target.
        """
        row = next((row for row in self.rows if row.candidate == candidate), None)
        return None if row is None else self.gain(row.outcome)


Show = Callable[[str, int, int], None]
"""A callback for progress: a text on what is run now, the number of reruns done, and the largest number of reruns."""


class SetBudgetSpent(Exception):
    """Raised when the search for a set of causes has made as many runs as it may."""


def fill(blame: Blame, player: CounterfactualPlayer, likely: Sequence[Candidate], show: Show) -> None:
    """Run the scenario without any possible cause, then without each one of `likely`; add the outcomes to `blame`.

    `show` is called before each rerun.
    """
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
    """Find a minimal set of possible causes that explains the cost, in at most `most` reruns.

    A rerun without the set must gain nine tenths of the gain without any possible cause. The set is stored in
    `blame.found`.
    """
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
        """Return the first set from which causes can be left out: the 1, 2, 4, ... causes with the largest gains.

        It is the smallest of these sets that explains nine tenths of the gap, or all possible causes if none does.
        """
        ordered = _by_gain(self._blame)
        return next((few for few in _doubled(ordered) if self.holds(few)), ordered)

    def holds(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether the rerun without `candidates` gains nine tenths of the gain without any possible cause.

        Raises SetBudgetSpent if no rerun is left for that.
        """
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
    """Return all possible causes: those that had a rerun of their own by their gain, the largest first, then others."""
    first = [row.candidate for row in blame.ordered()]
    tabled: Collection[Candidate] = set(first)
    return [*first, *(each for each in blame.candidates if each not in tabled)]
