"""The answers about repeating a run with other values: its form, a check of the values, and the start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from netdfl.core.errors import InputError, ScenarioError
from netdfl.web.folder import RunFolder
from netdfl.web.form import fields, modules, overrides_of, read_scenario
from netdfl.web.orders import RepeatOrder
from netdfl.web.repeats import RepeatedRuns, check, new_place

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True)
class _Repetition:
    """A request to repeat a run with other values.

    Attributes:
        run: the directory of the run.
        data: the scenario of the run.
        overrides: the changed values, as `path=value`.
        modules: the user's own modules that the new run would execute.
        agreed: whether the user agreed to the execution of all of these modules.
    """

    run: Path
    data: Mapping[str, object]
    overrides: Sequence[str]
    modules: Sequence[Mapping[str, str]]
    agreed: bool

    @property
    def scenario(self) -> Path:
        return self.run / "scenario.yaml"

    def value(self, key: str) -> str:
        """Return the value of a top-level key of the scenario, after the changes."""
        changed = [each.partition("=")[2] for each in self.overrides if each.startswith(f"{key}=")]
        return str(changed[-1] if changed else self.data.get(key, "")).strip().strip("\"'")


class RepeatPages:
    """The answers to pages that repeat runs of a folder with other values."""

    def __init__(self, folder: RunFolder) -> None:
        """Prepare to repeat runs of `folder`."""
        self._folder, self.runs = folder, RepeatedRuns()
        self._checking = asyncio.Lock()

    def form(self, name: str) -> dict[str, object]:
        """Return the form for the run that pages call `name`. Raises InputError if the run can't be repeated."""
        run = self._run(name)
        data = read_scenario(run)
        return {"place": self._folder.place_of(run), "fields": fields(data), "modules": modules(run, data, ())}

    async def check(self, name: str, order: RepeatOrder) -> dict[str, object]:
        """Return the user's modules that the run would execute, and errors in the values.

        Values are checked only if the user agreed to all modules, as the check executes these.
        """
        try:
            wanted = await asyncio.to_thread(self._wanted, name, order)
        except ScenarioError as error:
            return {"modules": [], "agreed": True, "wrong": str(error)}
        wrong = ""
        if wanted.agreed:
            async with self._checking:
                wrong = await check(wanted.scenario, wanted.overrides)
        return {"modules": wanted.modules, "agreed": wanted.agreed, "wrong": wrong}

    async def begin(self, name: str, order: RepeatOrder) -> dict[str, object]:
        """Start the new run; return its name for pages, and its path in the folder.

        Raises InputError if the modules were not agreed to, the values are wrong, or too many runs are still running.
        """
        wanted = await asyncio.to_thread(self._wanted, name, order)
        if not wanted.agreed:
            named = ", ".join(each["module"] for each in wanted.modules)
            raise InputError(f"the run would execute {named}: agree to that first")
        scenario = wanted.value("name")
        out = new_place(self._folder.root, scenario if _NAME.fullmatch(scenario) else "repeated", _seed(wanted))
        await self.runs.begin(wanted.scenario, wanted.overrides, out)
        return {"id": self._folder.name_of(out), "place": self._folder.place_of(out)}

    def _wanted(self, name: str, order: RepeatOrder) -> _Repetition:
        run = self._run(name)
        data = read_scenario(run)
        overrides = overrides_of(order.values, [str(each["key"]) for each in fields(data)])
        found = modules(run, data, overrides)
        return _Repetition(run, data, overrides, found, {each["module"] for each in found} <= set(order.agreed))

    def _run(self, name: str) -> Path:
        run = self._folder.find(name)
        if run is None:
            raise InputError("there is no such run here; look again")
        if self._folder.only is not None:
            raise InputError("a run that is served alone has no folder for others; serve the folder that it lies in")
        return run


def _seed(wanted: _Repetition) -> str:
    seed = wanted.value("seed")
    return seed if seed.isdigit() and len(seed) < 20 else "0"
