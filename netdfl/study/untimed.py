"""The note on a sweep that compares methods by virtual time, though unequal local rounds take no virtual time."""

from __future__ import annotations

from collections.abc import Iterable

from netdfl.scenario.model.schema import Scenario
from netdfl.scenario.model.task import Training
from netdfl.scenario.model.world import SimulatedOptions

TIMED = frozenset({"virtual_duration_s", "rounds_per_s", "round_s_median", "round_s_p95"})
"""Metrics of a simulated run that are measured by its virtual clock."""
CAPTION = "local rounds take no virtual time here; set world.compute"


def untimed_work(scenario: Scenario) -> str:
    """Return a text on the local work, such as `5 epochs of 32`, if local rounds take no virtual time; else "".

    The texts of two scenarios differ if their local rounds do: in length, batch size, or the gradients of a step.
    """
    world, task, algorithm = scenario.world, scenario.task, scenario.algorithm
    if not isinstance(world, SimulatedOptions) or not isinstance(task, Training):
        return ""
    if world.compute.kind != "constant" or world.compute.params["time"]:
        return ""
    steps, epochs = getattr(algorithm, "local_steps", None), getattr(algorithm, "local_epochs", None)
    length = f"{epochs} epochs" if steps is None else f"{steps} steps"
    return f"{length} of {task.batch_size}" + ", perturbed" * bool(getattr(algorithm, "rho", 0))


def time_note(works: Iterable[str]) -> str:
    """Return a note for plots that show virtual time; "" if the local `works` of the runs are alike or take time."""
    return CAPTION if len({*works} - {""}) > 1 else ""


def as_notices(note: str) -> list[str]:
    """Return the note `CAPTION`, if there is one, as a sentence for the readers of a table."""
    return [f"{note}: some methods do more in a round than others"] if note else []
