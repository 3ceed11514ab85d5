"""`netdfl.load`: scenarios from files or mappings, with models and data that are objects of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError, Problem, ScenarioError
from netdfl.scenario.load import load as read
from netdfl.scenario.loading.shipped import find_scenario
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from torch import nn

    from netdfl.training.tasks.given import Factory

_KEYS = {"model": "task.model.name", "data": "task.dataset.name"}


def load(
    scenario: str | Path | Mapping[str, object] | Scenario,
    sets: Sequence[str] = (),
    *,
    on: str | None = None,
    model: nn.Module | type[nn.Module] | Factory | None = None,
    data: object = None,
) -> Scenario:
    """Read, check and complete a scenario, optionally with a model and data of the program.

    The scenario's own parts are imported and tried: loading runs the modules beside the scenario that it names.

    Args:
        scenario: A YAML file, the name of one that comes with netdfl (`quickstart`), or the mapping that such a file
            holds; a loaded scenario is returned as it is.
        sets: Overrides, each `path.to.key=value`.
        on: The world to run on; short for an override of `world.kind`.
        model: In place of `task.model`: a module, whose weights all nodes start from; a module class; or a function
            that returns a module. Objects live in this process, so the world must be `simulated`; except for a class or
            function of a module beside the scenario or in the working directory, which all nodes can import by name.
        data: In place of `task.dataset`: a torch Dataset, arrays `(inputs, targets)`, a data frame, `(train, test)` of
            these, a list with one for each client, or `netdfl.Datasets`. It lives in this process, too.

    Raises:
        ScenarioError: With every mistake that was found.
        InputError: `sets`, `model` or `data` have the wrong type, or the world is another.
    """
    if not isinstance(sets, list | tuple) or not all(isinstance(each, str) for each in sets):
        raise InputError(f"sets is {sets!r}: expected a list of overrides, like ['rounds=5']")
    if model is None and data is None:
        return read(scenario, sets, on=on)
    names = _names(model, data)
    try:
        found = read(scenario, [*sets, *(f"{_KEYS[what]}={name}" for what, name in names.items())], on=on)
    except ScenarioError as exc:
        raise ScenarioError([_told(problem, names) for problem in exc.problems]) from exc
    if found.world.kind == "simulated":
        return found
    if data is None and (path := _path_of(model, scenario)):
        return read(scenario, [*sets, f"{_KEYS['model']}={path}"], on=on)
    raise _elsewhere(found.world.kind, names)


def _elsewhere(world: str, names: Mapping[str, str]) -> InputError:
    lives = f"{' and '.join(names)} given as objects live in this process, and nodes of world {world} do not"
    keys = " and ".join(f"{_KEYS[what]}: mine:{'Net' if what == 'model' else 'data'}" for what in names)
    return InputError(f"{lives}: say on='simulated', or put them into a module and write {keys}")


def _names(model: nn.Module | type[nn.Module] | Factory | None, data: object) -> dict[str, str]:
    from netdfl.training.tasks.given import handed_in  # it loads torch

    given = handed_in(model=model, data=data)
    return {what: name for what, name in (("model", given.model), ("data", given.dataset)) if name is not None}


def _path_of(model: object, scenario: str | Path | Mapping[str, object] | Scenario) -> str:
    """Return `module:name` of a model's class or function if other processes can import it; else an empty text."""
    module, name = getattr(model, "__module__", ""), getattr(model, "__qualname__", "")
    if isinstance(scenario, Scenario) or not name.replace(".", "").isidentifier() or module == "__main__":
        return ""
    beside = () if isinstance(scenario, Mapping) else (find_scenario(scenario).parent,)
    places = [folder.joinpath(*module.split(".")) for folder in (*beside, Path.cwd())]
    lies = any(place.with_suffix(".py").is_file() or (place / "__init__.py").is_file() for place in places)
    return f"{module}:{name}" if lies else ""


def _told(problem: Problem, names: Mapping[str, str]) -> Problem:
    """Return `problem`, a mistake in a scenario, with the program's objects called as arguments: `model=`, `data=`.

    `names` has, for each argument, the name of its object in the scenario.
    """
    for argument, name in names.items():
        problem = replace(problem, what=problem.what.replace(repr(name), f"given as {argument}="))
        if name in problem.file:
            problem = replace(problem, file=f"{argument}=")
        if argument == "model" and problem.what.startswith("missing key") and problem.expected == "in task.model":
            problem = replace(problem, remedy="write it there, or give a function: model=lambda: Net(...)")
    return problem
