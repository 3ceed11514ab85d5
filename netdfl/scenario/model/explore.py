"""The block `explore`: how `netdfl explore` varies each run, and which outcomes it searches for."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from netdfl.scenario.model.fields import Duration, Strict

FaultKind = Literal[
    "crash", "crash_kept", "crash_lost", "cut", "partition", "pause", "slow", "loss", "delay", "core"
]  # fmt: skip
Rate = Annotated[float, Field(gt=0, le=1e6)]
Rates = dict[FaultKind, Rate]
EVERY_KIND: Rates = {kind: 1.0 for kind in get_args(FaultKind) if kind != "core"} | {"loss": 3.0, "delay": 3.0}
OVER_UNDERLAY: Rates = EVERY_KIND | {"core": 1.0}
"""The rates of faults by kind for a scenario that has an underlay and names no rates. `EVERY_KIND`, the default of the
key, has no `core`: it enters the hash that identifies a scenario, which is to stay where there is no underlay."""


class Explore(Strict):
    """How `netdfl explore` varies the faults and delays from run to run, and which runs count as findings."""

    faults: int = Field(3, ge=0, le=100, description="The most faults in one run; how many there are is drawn.")
    rates: Rates = Field(
        EVERY_KIND,
        description="How often each kind of fault is drawn, in relation to the others; a kind that is not named is "
        "left out. By default `core`, faults of core links, is drawn where there is an underlay.",
    )
    luck: bool = Field(True, description="Whether the luck of messages on links is drawn anew for each run.")
    depth: int = Field(
        3,
        ge=0,
        le=20,
        description="The depth d of priority-based schedules: the nodes' messages are delayed by drawn priorities, "
        "which change at d - 1 drawn moments; 0: none are.",
    )
    delay: Duration | Literal["auto"] = Field(
        "auto", description="The most by which a priority delays a message; auto is a round."
    )
    find: list[str] = Field(
        ["verdict"],
        min_length=1,
        description="What counts as found: verdict (a run that fails), or a predicate, as package.module:callable.",
    )
