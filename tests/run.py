"""Run all that CI runs: the README's first command, then pytest, in three parts; checks of the code beside them.

Most tests measure nothing of the machine: these go first, a worker for each core, real fleets among them.
Beside them go fleets in namespaces and in containers, one after the other: they wait for the kernel and for
Docker more than they compute, and keep off each other's networks; then some that wait for time. What measures the
machine follows, alone.

`sh nodes/start.sh test` calls it. `test checks` stops after the checks; any other arguments are pytest's,
and then only pytest runs.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from netdfl.study.background import stop_background

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
LAYERS = "import sys; from importlinter.cli import lint_imports_command as check; sys.exit(check())"
Done = list[tuple[str, subprocess.CompletedProcess[str], float]]
FIRST_COMMAND = "sh nodes/start.sh run scenarios/quickstart.yaml"

WAITING = (
    "tests/algorithms/test_methods_in_processes.py",
    "tests/diagnosis/test_in_processes.py",
    "tests/diagnosis/test_probing.py",
    "tests/diagnosis/test_stalled_in_processes.py",
    "tests/docs/test_by_hand_page.py",
    "tests/hostile/test_connections.py",
    "tests/hostile/test_strangers_by_hand.py",
    "tests/hostile/test_strangers_of_a_fleet.py",
    "tests/hostile/test_table.py",
    "tests/machines/test_doctor.py",
    "tests/machines/test_lifeline.py",
    "tests/machines/test_machines.py",
    "tests/machines/test_page_of_machines.py",
    "tests/record/test_of_0_2_0.py",
    "tests/running/test_attended.py",
    "tests/running/test_run_lock.py",
    "tests/soak/test_mutants.py",
    "tests/standalone/test_by_hand.py",
    "tests/standalone/test_versions.py",
    "tests/supervisor/test_asking_for_messages.py",
    "tests/supervisor/test_catching_up.py",
    "tests/supervisor/test_core_links_of_real_nodes.py",
    "tests/supervisor/test_due_to_return.py",
    "tests/supervisor/test_restarts.py",
    "tests/supervisor/test_resume_nodes.py",
    "tests/supervisor/test_scheduled_links.py",
    "tests/supervisor/test_scripted_faults.py",
    "tests/supervisor/test_shown.py",
    "tests/supervisor/test_stopped.py",
    "tests/supervisor/test_waits_shown.py",
    "tests/transport/test_strangers_at_tls.py",
    "tests/web/test_address_in_browser.py",
    "tests/web/test_blame_in_browser.py",
    "tests/web/test_curves_in_browser.py",
    "tests/web/test_followed_in_browser.py",
    "tests/web/test_in_browser.py",
    "tests/web/test_many_in_browser.py",
    "tests/web/test_patience.py",
    "tests/worlds/test_suite_in_processes.py",
    "tests/worlds/test_suite_in_threads.py",
)
BESIDE = (
    "tests/namespaces/test_suite_in_namespaces.py",
    "tests/namespaces/test_namespaces_world.py",
    "tests/namespaces/test_overload.py",
    "tests/containers",
    *WAITING,
)
ALONE = "tests/namespaces"
TOGETHER = ("-n", "auto", "--dist", "worksteal")
SLOWEST = "--durations=40"

KEEPS_NOTHING = ["--cache-dir=/dev/null"] if os.environ.get("CI") else []
"""For mypy in a clean clone, whose cache nobody would read again."""
CHECKS = {
    "lint": [PYTHON, "-m", "ruff", "check", "."],
    "format": [PYTHON, "-m", "ruff", "format", "--check", "."],
    "types": [PYTHON, "-m", "mypy", *KEEPS_NOTHING],
    "layers": [PYTHON, "-c", LAYERS, "--no-logo"],
    "generated protobuf code": [PYTHON, "protos/generate.py", "--check"],
    "generated JSON Schema": [PYTHON, "-m", "netdfl.scenario.json_schema", "--check"],
}


def main(arguments: list[str]) -> int:
    """Run what the arguments ask for. Returns pytest's exit code, or 1 where a check failed beside it."""
    if arguments == ["checks"]:
        return 1 if report(run_checks()) else 0
    if arguments:
        return pytest(arguments)
    if stop_background():
        say("stopped the work in the background (netdfl claims run): it would disturb what is measured")
    with chromium(), docker(), ThreadPoolExecutor(1) as beside:
        checks = beside.submit(run_checks)
        failed = first_command()
        code = everything()
        failed += report(checks.result())
    if failed:
        say(f"failed beside pytest: {', '.join(failed)}; the output is above")
    return code or (1 if failed else 0)


def run_checks() -> Done:
    """Run the checks one after another; each with its outcome and the seconds that it took."""
    done: Done = []
    for name, command in CHECKS.items():
        began = time.monotonic()
        done.append((name, _captured(command), time.monotonic() - began))
    return done


def report(done: Done) -> list[str]:
    """Print what the checks found, and all that a failed one had to say. Returns the names of those that failed."""
    failed = []
    for name, ended, seconds in done:
        say(f"{name}: {'ok' if ended.returncode == 0 else f'exit code {ended.returncode}'} ({seconds:.0f} s)")
        if ended.returncode != 0:
            print(ended.stdout, flush=True)
            failed.append(name)
    return failed


@contextmanager
def chromium() -> Iterator[None]:
    """Have a browser installed beside all else, where CI may; the tests in a browser wait for it, and not for long."""
    with TemporaryDirectory() as directory:
        os.environ["NETDFL_CHROMIUM_REPORT"] = file = f"{directory}/chromium"
        installing = subprocess.Popen([PYTHON, "-m", "tests.chromium", file], cwd=ROOT)
        try:
            yield
        finally:
            with suppress(subprocess.TimeoutExpired):
                installing.wait(10)
            installing.kill()


@contextmanager
def docker() -> Iterator[None]:
    """Prepare Docker and the image of a node beside all else; the tests of containers wait for it."""
    with TemporaryDirectory() as directory:
        os.environ["NETDFL_DOCKER_REPORT"] = file = f"{directory}/docker"
        engine = subprocess.Popen([PYTHON, "-m", "tests.docker_engine", file], cwd=ROOT, stdin=subprocess.PIPE)
        try:
            yield
        finally:
            assert engine.stdin is not None
            engine.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                engine.wait(60)
            engine.kill()


def first_command() -> list[str]:
    """Run the README's first command as a new user does. Returns its name if it fails."""
    say(FIRST_COMMAND)
    code = subprocess.run(shlex.split(FIRST_COMMAND), cwd=ROOT).returncode
    say(f"the README's first command ended with exit code {code}")
    return ["the README's first command"] if code else []


def everything() -> int:
    """Run all tests. Returns pytest's exit code, of the first part that failed."""
    most = [f"--ignore={path}" for path in (ALONE, *BESIDE)]
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(_captured, pytest_command([SLOWEST, *BESIDE]))
        codes = [pytest([*TOGETHER, SLOWEST, *most])]
        ended = beside.result()
    say(f"pytest {shlex.join(BESIDE)}, beside that")
    print(ended.stdout, flush=True)
    done = [f"--ignore={path}" for path in BESIDE if path.startswith(ALONE)]
    codes += [ended.returncode, pytest([SLOWEST, ALONE, *done])]
    return next(filter(None, codes), 0)


def pytest(arguments: list[str]) -> int:
    """Run pytest. Returns its exit code."""
    say(f"pytest {' '.join(arguments)}".rstrip())
    return subprocess.run(pytest_command(arguments), cwd=ROOT).returncode


def pytest_command(arguments: list[str]) -> list[str]:
    return [PYTHON, "-m", "pytest", "-q", *arguments]


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def _captured(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
