"""netdfl: an asyncio message-passing emulator for decentralized federated learning.

From Python, a scenario is run like this:

    import netdfl

    scenario = netdfl.load("scenarios/quickstart.yaml", ["rounds=5"])
    finished = netdfl.run(scenario)
    finished.run.metrics.df()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from netdfl.replaying.diff import diff
    from netdfl.replaying.replay import replay
    from netdfl.running.models import open_run
    from netdfl.running.objects import load
    from netdfl.running.run import run
    from netdfl.study.compare_runs import compare
    from netdfl.training.data.own import Datasets
    from netdfl.training.tasks.task import Task

__all__ = ["Datasets", "Task", "compare", "diff", "load", "open_run", "replay", "run"]

_HOMES = {
    "Datasets": "netdfl.training.data.own",
    "Task": "netdfl.training.tasks.task",
    "compare": "netdfl.study.compare_runs",
    "diff": "netdfl.replaying.diff",
    "load": "netdfl.running.objects",
    "open_run": "netdfl.running.models",
    "replay": "netdfl.replaying.replay",
    "run": "netdfl.running.run",
}


def __getattr__(name: str) -> object:
    """Import a public name of the package at its first use; `__version__` is that of the installed package, or None."""
    from importlib import import_module

    if name == "__version__":
        return import_module("netdfl.core.files").version_of("netdfl")
    if name not in _HOMES:
        raise AttributeError(f"module 'netdfl' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names too before their first use, for completion by Tab and for `help`."""
    return sorted({*globals(), *__all__, "__version__"})
