"""The keys that a study's file can have: grids of runs, each with a scenario, cases, varied values and plots."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from netdfl.scenario.model.fields import Strict

Cases = dict[str, dict[str, object]]


class FigureSpec(Strict):
    """The specification of a plot: `y` against `x`, one line for each combination of other varied values.

    `panels` names a varied path whose values get a panel each, side by side. `case` stands for the cases.
    With `x: round`, `y` is a metric that a run records each round, of the nodes or of the fleet: a line for the median,
    a band from the smallest to the largest. With `x: NAME@2` there is a point for every node and round, against the
    metric NAME of the same node two rounds before. With `x: bytes_sent`, `y` is a metric of the fleet, and
    there is a line for each run against the bytes that all nodes had sent by then.
    """

    y: str = Field(description="The metric to draw; `netdfl list figures` has them.")
    x: str = Field(
        description="What it is against: round, bytes_sent, what varies, case, or NAME@1, the metric NAME a round "
        "before."
    )
    panels: str = Field(
        default="", description="What varies from panel to panel, side by side; not where x is `round`."
    )
    log: bool = Field(
        default=False,
        description="Whether y is drawn and averaged by its logarithm; by default where it is `error` or "
        "`consensus_distance`, as in tables.",
    )
    label: str = Field(default="", description="The words at the y axis.")


class Sweep(Strict):
    """A grid of runs: every case, with every combination of varied values, with every seed."""

    title: str = Field("", description="What captions and headings of tables call it; by default its name.")
    scenario: dict[str, object] = Field(description="The scenario that all cells share.")
    cases: Cases = Field(
        {},
        description="By name: what a case overrides, by path. A mapping is merged with the scenario's; one that names "
        "its part, by `name` or `kind`, replaces it.",
    )
    vary: dict[str, Annotated[list[object], Field(min_length=1)] | Annotated[Cases, Field(min_length=1)]] = Field(
        {}, description="By path: its values. Or by a name of its own: what it can be, by name, with the overrides."
    )
    seeds: int = Field(default=5, ge=1, description="How often each cell is run, each time with the next seed.")
    figures: list[FigureSpec] = Field(
        [], description="What is drawn beside the learning curves; the table then has these metrics."
    )


class StudyFile(Strict):
    """The contents of a study file: sweeps by name."""

    schema_: Literal["netdfl/study/1"] = Field(alias="schema", description="The form of the file: netdfl/study/1.")
    name: str = Field(description="The study's name.")
    sweeps: dict[str, Sweep] = Field(description="The grids of runs, by names of your own.")
