"""Runs of which one process stops itself at a step of what nodes and their supervisor tell each other.

A busy machine, a debugger or a laptop's lid does the same at any moment. `python -m tests.supervisor.stopping FOLDER
STEP SCENARIO OUT` runs a scenario; whoever comes to STEP writes its number to FOLDER and stops, and is let go on by
whoever looks there.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest import mock

from netdfl.core.control import Start
from netdfl.core.errors import InputError
from netdfl.record.run import open_run
from netdfl.worlds import fork_client
from netdfl.worlds.fork_client import ForkServer
from tests.warm import ROOT, warm_python

STOPPED, STEP, FOLDER = 2, "NETDFL_TEST_STOP_AT", "NETDFL_TEST_STOP_IN"
"""The node that crashes, returns and is stopped; where a process finds what it is to do."""
CRASHES_AT, ROUNDS = 4, 30
SCENARIO: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "name": "stopped",
    "nodes": 4,
    "rounds": ROUNDS,
    "task": {"kind": "consensus", "dim": 10},
    "algorithm": "dpsgd",
    "topology": "ring",
    "world": {"kind": "processes", "fidelity": {"relative": 100, "slack": "100s"}},
    "links": {"default": {"latency": "100ms"}},
    "evaluation": {"every": 1},
    "events": [{"at_round": CRASHES_AT, "crash": STOPPED, "restart_after": "300ms", "state": "kept"}],
}
When = Callable[..., bool]


class Step(NamedTuple):
    """Where in the code a process stops: at a call for which `when` holds, before it, or after."""

    place: str
    when: When
    after: bool = False

    @property
    def in_node(self) -> bool:
        """Whether a node stops there, not the supervisor."""
        return ":Supervisor." not in self.place and ":Restarts." not in self.place


def _of_node(node: Any, *args: Any) -> bool:
    return bool(node.id == STOPPED)


def _leaves(node: Any, code: int, *, crashed: bool) -> bool:
    return _of_node(node) and (node.host.crash is not None) is crashed


def _is_told(node: Any, order: Any, *, epoch: int) -> bool:
    return _of_node(node) and isinstance(order, Start) and node.host.life.epoch == epoch


def _attends(own: Any, node: int, *args: Any, epoch: int) -> bool:
    return bool(node == STOPPED and args[-1] == epoch)


def _ends_a_round(node: Any, state: Any, view: Any, *args: Any) -> bool:
    return _of_node(node) and view.round == CRASHES_AT - 2


def _kills_itself(pid: int, number: int) -> bool:
    return number == signal.SIGKILL


def _attended(own: Any, hello: Any) -> bool:
    return bool(hello.node == STOPPED)


def _hears(own: Any, node: int, *args: Any) -> bool:
    return node == STOPPED


def _says(own: Any, node: int, progress: Any, *, ended: bool) -> bool:
    return bool(progress.ended) if ended else node == STOPPED and progress.round >= CRASHES_AT - 1


IN_A_ROUND = "a node ends a round"
STEPS: Mapping[str, Step] = {
    # starts
    "the supervisor hears the first node": Step("netdfl.supervisor.supervisor:Supervisor._on_hello", _attended),
    "the supervisor begins": Step("netdfl.supervisor.supervisor:Supervisor._begin", lambda own: True),
    "the supervisor has begun": Step("netdfl.supervisor.supervisor:Supervisor._begin", lambda own: True, after=True),
    "a node attends": Step("netdfl.host.process:SupervisorStream.attend", partial(_attends, epoch=0)),
    "a node is told to begin": Step("netdfl.host.living:LivingNode.obey", partial(_is_told, epoch=0)),
    # in its rounds
    IN_A_ROUND: Step("netdfl.host.node:NodeHost.end_round", _ends_a_round),
    # a scripted crash
    "the supervisor hears of the round before a crash": Step(
        "netdfl.supervisor.supervisor:Supervisor._on_progress", partial(_says, ended=False), after=True
    ),
    "the supervisor hears of a crash": Step("netdfl.supervisor.restarts:Restarts.crashed", _hears),
    "a node is about to crash": Step("netdfl.host.node:NodeHost._crash", _of_node),
    "a node that crashes leaves": Step("netdfl.host.living:LivingNode.leave", partial(_leaves, crashed=True)),
    "a node has said that it crashes": Step(
        "netdfl.host.process:os.kill", lambda pid, number: number == signal.SIGKILL
    ),
    # a return
    "the supervisor has heard of a crash": Step("netdfl.supervisor.restarts:Restarts.crashed", _hears, after=True),
    "the supervisor has a node live again": Step("netdfl.supervisor.restarts:Restarts._launch", _hears, after=True),
    "the supervisor hears of a return": Step("netdfl.supervisor.restarts:Restarts.attends", lambda own, hello: True),
    "a node that lives again attends": Step("netdfl.host.process:SupervisorStream.attend", partial(_attends, epoch=1)),
    "a node that lives again is told to begin": Step("netdfl.host.living:LivingNode.obey", partial(_is_told, epoch=1)),
    # the end, and departures
    "the supervisor hears that a node has finished": Step(
        "netdfl.supervisor.supervisor:Supervisor._on_progress", partial(_says, ended=True)
    ),
    "the supervisor has said that the run is over": Step(
        "netdfl.supervisor.supervisor:Supervisor._stop", lambda own, grace_s: True
    ),
    "a node that has finished leaves": Step("netdfl.host.living:LivingNode.leave", partial(_leaves, crashed=False)),
    "a node says goodbye": Step("netdfl.host.process:SupervisorStream.part", lambda own, code, crash: crash is None),
}


# in the processes of a run


def stop_here(folder: Path) -> None:
    """Stop this process, unless one has stopped before; say so first."""
    with suppress(FileExistsError):
        with (folder / "stopped").open("x") as file:
            file.write(str(os.getpid()))
            file.flush()
        os.kill(os.getpid(), signal.SIGSTOP)


def stop_at(step: Step, folder: Path) -> None:
    """Have this process, and those forked from it, stop at `step`."""
    module, _, path = step.place.partition(":")
    *way, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for each in way:
        owner = getattr(owner, each)
    inner = getattr(owner, name)

    @wraps(inner)
    def outer(*args: Any, **more: Any) -> Any:
        if not step.when(*args):
            return inner(*args, **more)
        if not step.after:
            stop_here(folder)
        result = inner(*args, **more)
        if step.after:
            stop_here(folder)
        return result

    setattr(owner, name, outer)


def main(folder: str, name: str, scenario: str, out: str) -> int:
    """Run `scenario` into `out`, as the command line does; the exit code."""
    from netdfl.cli import main as command_line

    os.environ |= {STEP: name, FOLDER: folder}
    sys.argv = ["netdfl", "run", scenario, f"--out={out}", "--no-page"]
    with ExitStack() as patched:
        if STEPS[name].in_node:
            patched.enter_context(mock.patch.object(ForkServer, "open", staticmethod(_forks)))
        else:
            stop_at(STEPS[name], Path(folder))
        command_line()
    return 0


def _forks(through: Sequence[str] = (), *args: Any) -> ForkServer:
    """A fork server whose nodes stop themselves."""
    command = [*through, sys.executable, "-m", "tests.supervisor.stopping"]
    environment = fork_client.ENVIRONMENT | dict(os.environ) | fork_client.ONE_THREAD
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return ForkServer(subprocess.Popen(command, env=environment, start_new_session=True, **pipes))


def serve() -> None:
    """Be the fork server; what imports grpc is changed in its children alone."""
    from netdfl.worlds import forkserver

    step, become = STEPS[os.environ[STEP]], forkserver._Forks.become

    def stopping(self: Any, command: Any) -> int:
        if step.in_node and STOPPED in command.nodes:
            stop_at(step, Path(os.environ[FOLDER]))
        return become(self, command)

    with mock.patch.object(forkserver._Forks, "become", stopping):
        forkserver.main()


# from outside


class Stopped(NamedTuple):
    """A run that ended, one process of which was stopped."""

    step: str
    code: int
    text: str
    path: Path

    @classmethod
    def at(cls, name: str, folder: Path, for_s: float, sets: Mapping[str, Any]) -> Self:
        """Run the scenario with the step `name`, at which a process stops for `for_s`."""
        folder.mkdir(parents=True)
        (folder / "scenario.yaml").write_text(json.dumps(dict(SCENARIO) | dict(sets)))
        words = [str(folder), name, str(folder / "scenario.yaml"), str(folder / "run")]
        command = [warm_python(), "-m", "tests.supervisor.stopping", *words]
        run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while not (folder / "stopped").exists() and run.poll() is None:
            time.sleep(0.02)
        time.sleep(for_s)
        with suppress(FileNotFoundError, ProcessLookupError, ValueError):
            os.kill(int((folder / "stopped").read_text()), signal.SIGCONT)
        text, _ = run.communicate()
        return cls(name, run.returncode, text, folder / "run")

    def wrong(self) -> list[str]:
        """What is not as it is where nobody is stopped."""
        try:
            run = open_run(self.path)
            rows, said = run.rows, run.result
        except InputError as error:
            return [f"{error}: {self.text[-1500:]}"]
        happened = rows(
            "SELECT node, kind FROM events WHERE kind IN ('crash', 'restart', 'died', 'failed') ORDER BY at_s"
        )
        told = rows("SELECT node, count(*) FROM events WHERE kind = 'fidelity' GROUP BY node ORDER BY node")
        played = rows(
            "SELECT node, list(DISTINCT round ORDER BY round) FROM metrics WHERE name = 'round_s' GROUP BY node"
        )
        left_out = rows("SELECT round, details FROM events WHERE kind = 'left_out'")
        done = {node: [] for node in range(4)} | dict(played)
        lost = [round for round, _ in left_out if round < CRASHES_AT]
        behind = {each["node"]: each["why"] for each in (said["time"] or {"behind": ()})["behind"]}
        checks = {
            "where the time went": self.step != IN_A_ROUND or behind.get(STOPPED) == "stopped",
            "nobody came to that step": (self.path.parent / "stopped").exists(),
            "exit code": self.code == 0,
            "crash and return": happened == [(STOPPED, "crash"), (STOPPED, "restart")],
            "rounds of the others": all(done[node] == list(range(ROUNDS)) for node in (0, 1, 3)),
            "rounds of the node": done[STOPPED][: CRASHES_AT + 1] == list(range(CRASHES_AT + 1)),
            "what nodes say as they leave": told == [(0, 1), (1, 1), (2, 2), (3, 1)],
            "models of rounds before the crash": not lost,
            "verdict": said["verdict"] in ("pass", "done") and said["died"] == said["unfinished"] == [],
        }
        wrong = [what for what, well in checks.items() if not well]
        return [*wrong, f"{self.text[-1500:]} {happened} {told} {played} {left_out}"] if wrong else []


def all_wrong(stops: Mapping[str, float], folder: Path, **sets: Any) -> dict[str, list[str]]:
    """What goes wrong where a process stops at each step of `stops`, for so many seconds, all at once."""
    with ThreadPoolExecutor(len(stops)) as pool:
        runs = {
            step: pool.submit(Stopped.at, step, folder / str(number), for_s, sets)
            for number, (step, for_s) in enumerate(stops.items())
        }
    return {step: wrong for step, each in runs.items() if (wrong := each.result().wrong())}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else serve())
