"""The claims and their decision rule, read from `claims.yaml`, and the cells that each claim needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from netdfl.core.clock import NS_PER_S
from netdfl.core.units import parse_time_ns
from netdfl.scenario.loading.document import parse
from netdfl.scenario.model.fields import Strict
from netdfl.study.plan import Cell
from netdfl.study.reproduce import SCENARIOS
from netdfl.study.trials import FigureSetup, published, scenario_of, trials

LESS = ("gap", "rounds_to_")
"""The beginnings of the names of metrics for which a smaller value is better."""
DISTILLING = ("dynafed_synonly", "fedsynsam")
"""Methods that change their behavior after 25 or 30 rounds; their short test run is long enough for both phases."""
WORLD = "world.kind=simulated"


class Instead(Strict):
    """Another setting in which a claim is tested in place of the paper's own, mostly a cheaper one.

    Attributes:
        on: the setting in words.
        sets: the overrides of the scenario that make it.
    """

    on: str
    sets: list[str]


class Claim(Strict):
    """A claim of a paper: one method is better than another in some metric.

    Attributes:
        says: the claim in words.
        paper: the paper's number.
        table: the paper's table.
        figure: the metric: mean_last_5, best or last (of the average model's test accuracy), gap (of training and test
            accuracy), or rounds_to_96 and the like.
        better: the label of the better method's cell in that table.
        worse: the label of the worse method's cell.
        first_seed: the first seed that counts; those before it were published when the rule was written.
        instead: another setting in which the claim is tested; None: the paper's own.
    """

    says: str
    paper: str
    table: str
    figure: str = Field(pattern=r"^(mean_last_5|best|last|gap|rounds_to_\d+)$")
    better: str
    worse: str
    first_seed: int = Field(0, ge=0)
    instead: Instead | None = None

    @property
    def fewer(self) -> bool:
        """Whether a smaller value of the claim's metric is better."""
        return self.figure.startswith(LESS)

    @property
    def overrides(self) -> tuple[str, ...]:
        """The overrides of the scenario for the runs of both methods."""
        return () if self.instead is None else tuple(self.instead.sets)

    @property
    def printed(self) -> float:
        """The gain printed in the paper, in points or rounds, positive if it supports the claim."""
        gain: float = self.setup(self.better).figure.value - self.setup(self.worse).figure.value
        return -gain if self.fewer else gain

    def setup(self, label: str) -> FigureSetup:
        """Return the scenario and overrides that measure the cell with this label in the paper's table."""
        return _setups(self.paper, self.table)[label]


class Rule(Strict):
    """All claims, and the rule by which they are decided, as read from `claims.yaml`.

    Attributes:
        level: the corrected p-value below which a claim is decided.
        looks: the numbers of seeds after which a claim is tested.
        budget: the CPU time for all runs, as text.
        proof_rounds: the number of rounds of the short run that shows whether a method's results have changed.
        claims: the claims by name.
    """

    schema_: Literal["netdfl/claims/1"] = Field(alias="schema")
    level: float = Field(gt=0, lt=1)
    looks: list[Annotated[int, Field(ge=2)]]
    budget: str
    proof_rounds: int = Field(ge=1)
    claims: dict[str, Claim]

    @property
    def budget_s(self) -> float:
        """The CPU time in seconds that all runs for the claims may take together."""
        return parse_time_ns(self.budget) / NS_PER_S


@dataclass(frozen=True)
class WantedCell:
    """A run that a claim needs, without its seed.

    Attributes:
        file: the scenario file.
        label: the label of the cell in the paper's table.
        method: the name of the method.
        sets: overrides of the scenario.
    """

    file: Path
    label: str
    method: str
    sets: tuple[str, ...]

    def cell(self, seed: int) -> Cell:
        """Return this run with a seed, as a cell (a single run) of a study."""
        return Cell(self.label, (), seed, (*self.sets, f"seed={seed}"))

    def proof(self, rounds: int) -> Cell:
        """Return a short version of this run, which shows whether the code still computes the same numbers.

        It has `rounds` rounds.
        """
        warm = (f"algorithm.warmup_rounds={rounds // 2}",) if self.method in DISTILLING else ()
        return Cell(self.label, (), 0, (*self.sets, *warm, f"rounds={rounds}", "seed=0"))


@cache
def _setups(paper: str, table: str) -> Mapping[str, FigureSetup]:
    return {each.label: each for each in trials(published(paper, table))}


@cache
def rule() -> Rule:
    """Return the claims that ship with netdfl, with the rule by which they are decided."""
    text = files("netdfl.study.claims").joinpath("claims.yaml").read_text(encoding="utf-8")
    return read_rule(text)


def read_rule(text: str) -> Rule:
    """Return the claims, with their decision rule, in the text of a file.

    Raises ValueError if the text is not valid.
    """
    return Rule.model_validate(parse(text, "claims.yaml").data)


def cells_of(claim: Claim, scenarios: Path = SCENARIOS) -> Mapping[str, WantedCell]:
    """Return the two runs that a claim compares, as `better` and `worse`. Raises ValueError if one can't be run."""
    found: dict[str, WantedCell] = {}
    for side, label in (("better", claim.better), ("worse", claim.worse)):
        setup = claim.setup(label)
        if setup.why_not:
            raise ValueError(f"{label}: {setup.why_not}")
        sets = (*setup.sets, *claim.overrides, WORLD)
        found[side] = WantedCell(scenario_of(setup, scenarios), label, setup.figure.method, sets)
    return found
