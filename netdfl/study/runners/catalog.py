"""The runners by name, and a user's own runners."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping

from netdfl.core.errors import InputError
from netdfl.core.units import parse_size_bytes
from netdfl.study.runners.base import USUAL, RunNeeds, Runner, RunnerChoice
from netdfl.study.runners.local import LocalRunner
from netdfl.study.runners.ray import RayRunner
from netdfl.study.runners.slurm import SlurmRunner

RUNNERS: Mapping[str, Callable[[], Runner]] = {"local": LocalRunner, "slurm": SlurmRunner, "ray": RayRunner}


def find_runner(name: str) -> Callable[[], Runner]:
    """Return the factory of a runner: one of `RUNNERS`, or a user's `module:callable`. Raises InputError."""
    if name in RUNNERS:
        return RUNNERS[name]
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InputError(f"--runner {name}: expected {', '.join(RUNNERS)}, or module:callable of your own")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(f"--runner {name} can't be imported: {error}") from error
    missing = (
        [each for each in ("start", "ended", "stop") if not hasattr(found, each)] if isinstance(found, type) else []
    )
    if not callable(found) or missing:
        what = f"lacks {', '.join(missing)}" if missing else "is not callable"
        raise InputError(f"--runner {name} {what}: a runner has start, ended and stop (netdfl.study.runners.base)")
    return found  # type: ignore[no-any-return]


def choose_runner(
    name: str, jobs: int | None = None, cpus: int | None = None, gpus: float | None = None, memory: str | None = None
) -> RunnerChoice:
    """Return the runner that a command's options choose: --runner, --jobs, --cpus, --gpus, --memory.

    Raises InputError.
    """
    make = find_runner(name)
    given = {"--cpus": cpus, "--gpus": gpus, "--memory": memory}
    asked = [option for option, value in given.items() if value is not None]
    if name == "local":
        if asked:
            raise InputError(f"{asked[0]} is what an engine keeps free for each run: name one with --runner")
        return RunnerChoice(make, jobs or 1, USUAL)
    try:
        nbytes = None if memory is None else parse_size_bytes(memory)
    except ValueError as error:
        raise InputError(f"--memory {memory}: {error}") from error
    return RunnerChoice(make, jobs or 0, RunNeeds(cpus or 1, gpus or 0, nbytes))
