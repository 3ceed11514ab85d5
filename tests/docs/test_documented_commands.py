"""Each command of README and docs is one that netdfl understands, and runs in a test or is named here with a reason."""

from __future__ import annotations

import asyncio
import glob
import re
import shlex
import shutil
import socket
from pathlib import Path

import pytest
import uvicorn
from documented_commands import PAGES, ROOT, Shown, commands, mistake, name_of, of_netdfl, shown_commands
from test_tutorial import matches
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.study.runners.catalog import RUNNERS
from tests.in_process import InProcess
from tests.web.web_server import ask

RUN_BY = {
    "blame.md": "test_tutorial.py",
    "by_hand.md": "test_by_hand_page.py",
    "exploring.md": "test_tutorial.py",
    "lecture.md": "test_lecture.py",
    "own_algorithm.md": "test_tutorial.py",
    "own_parts.md": "test_tutorial.py",
    "own_task.md": "test_own_task_page.py",
    "prove.md": "test_tutorial.py",
    "replay.md": "test_tutorial.py",
    "tuning.md": "test_tuning_page.py",
    "tutorial.md": "test_tutorial.py",
    "your_network.md": "test_your_network_page.py",
}
"""Pages whose `sh` and `console` blocks another test runs as they stand, with the files that they write."""

HERE = (
    "README.md",
    "arm64.md",
    "diagnosis.md",
    "machines.md",
    "many_runs.md",
    "metrics.md",
    "resuming.md",
    "studies/twin.md",
)
"""Pages whose commands this test runs, but for those of `NOT_RUN`, in this process and over small runs."""

NOT_RUN = {
    "CI itself begins with it or is it: tests/run.py, .ci/run, test_readme.py": ["sh nodes/start.sh"],
    "installs or fetches from the network": [
        "python3 -m venv .venv",
        "pip download",
        "python3 -m venv /tmp/carry",
        "/tmp/carry/bin/pip",
        "python3 -m venv netdfl-env",
        "netdfl-env/bin/",
        "netdfl data get",
        "netdfl data convert client_",
    ],
    "needs Docker, and an image of a node: tests/containers has the same where Docker is": [
        "netdfl run scenarios/quickstart.yaml --on containers",
        "netdfl run SCENARIO --on containers",
        "docker ps",
        "docker save",
        "docker load",
        "docker-compose",
        "netdfl testbed scenarios/quickstart.yaml --out testbed",
        "cd testbed",
        "netdfl collect . --out run",
    ],
    "needs a cluster: tests/machines and tests/study have small ones": [
        "netdfl testbed scenarios/quickstart.yaml --for kubernetes",
        "salloc",
        "netdfl doctor --on ray",
        "netdfl doctor --peers",
        "netdfl sbatch",
        "netdfl run scenario.yaml --on ray",
        "ray job submit",
        "netdfl sweep scenarios/studies/loss.yaml --runner slurm",
        "RAY_ADDRESS",
    ],
    "one machine of several that are set up by hand: test_by_hand_page.py, tests/standalone/test_node_metrics.py": [
        "netdfl credentials scenario.yaml",
        "netdfl node --scenario scenario.yaml --id 1",
        "netdfl node --scenario clinics.yaml",
        "netdfl collect fleet",
    ],
    "takes many minutes to days, some with MNIST or CIFAR-10: tests/study reads the files of the studies": [
        "netdfl sweep scenarios/studies/",
        "netdfl run scenarios/studies/",
        "netdfl reproduce",
        "netdfl claims",
        "python -m tests.soak.hunting",
    ],
    "measures the machine, alone and for minutes": ["python benchmarks/"],
    "a thousand nodes, or two hundred, to be measured": ["netdfl run scenarios/quickstart.yaml --on processes"],
}
"""What can't run in CI, by the beginnings of commands, with the reason."""

FEW = "--on simulated --set rounds=2 --set nodes=6 --set expect={} --no-page"
SMALLER = {
    "netdfl run scenarios/quickstart|netdfl run quickstart": FEW,
    "netdfl run scenarios/faults/rendezvous|netdfl run twin": "--on simulated --no-page",
    "netdfl sweep quickstart": "--seeds 1 --set rounds=1 --set nodes=6 --set expect={}",
    "netdfl sweep smoke/push_sum": "--seeds 1 --set rounds=2 --set expect={}",
    "netdfl serve": "--port 0",
}
"""Words behind a command of `HERE`, so that it takes no process of its own, no port and few seconds."""
INLINE = (
    "netdfl run faults/churn --on simulated",
    "netdfl explain scenarios/quickstart.yaml",
    "netdfl list",
    "netdfl list algorithms dfedavg",
    "netdfl runs list",
)
"""Whole commands within the README's sentences."""
ALL = [shown for page in PAGES for shown in shown_commands(page)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_netdfl_understands_the_commands_of_the_page(page: Path) -> None:
    typed = [words for shown in shown_commands(page) for words in of_netdfl(shown.command)]
    assert [(words, mistake(words)) for words in typed if mistake(words)] == []


def test_what_netdfl_does_not_understand_is_found() -> None:
    assert mistake("run a.yaml --out b".split()) == ""
    for wrong in ("rn a.yaml", "run a.yaml --ot b", "runs lst", "diff", "runs list --most many", "data"):
        assert mistake(wrong.split()), wrong
    line = "! FOO=1 netdfl run a.yaml > b && .venv/bin/netdfl doctor | cat; pip install netdfl"
    assert list(of_netdfl(line)) == [["run", "a.yaml"], ["doctor"]]
    block = "netdfl run \\\n   a.yaml   # why\n# alone\nwait\n"
    assert list(commands(block)) == [("netdfl run a.yaml", []), ("wait", [])]
    assert list(commands("$ netdfl list\nfirst\n$ ls\n")) == [("netdfl list", ["first"]), ("ls", [])]


def reasons(shown: Shown) -> list[str]:
    return [why for why, begins in NOT_RUN.items() if shown.command.startswith(tuple(begins))]


def test_every_command_runs_in_a_test_or_is_named_with_the_reason() -> None:
    elsewhere = [each for each in ALL if each.kind and each.page in RUN_BY]
    assert [each for each in ALL if each not in elsewhere and each.page not in HERE and not reasons(each)] == []
    for page, test in RUN_BY.items():
        assert re.search(rf'"{Path(page).stem}(\.md)?"', (ROOT / "tests/docs" / test).read_text()), f"{test}: {page}"


def test_what_is_named_is_still_in_the_docs() -> None:
    here = [each.command for each in ALL if not (each.kind and each.page in RUN_BY)]
    named = [begin for begins in NOT_RUN.values() for begin in begins]
    assert [begin for begin in named if not any(command.startswith(begin) for command in here)] == []
    assert [begin for begin in SMALLER if not any(re.match(begin, command) for command in here)] == []
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert [command for command in INLINE if f"`{command}`" not in readme] == []


@pytest.fixture(scope="module")
def small_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the runs that the pages speak of, each of four nodes and two rounds."""
    folder = tmp_path_factory.mktemp("small")
    small = ["nodes=4", "rounds=2", "expect={}", "algorithm.name=dfedavgm", "topology=ring", "checkpoint.every=1"]
    for number, place in enumerate(("runs/quickstart/20261126T101500Z-1", "runs/quickstart/last", "sweeps/loss/a"), 1):
        sets = [*small, f"seed={number}", f"algorithm.lr={number / 10}", f"algorithm.momentum={number / 10}"]
        netdfl.run(netdfl.load("quickstart", sets, on="simulated"), out=folder / place, page=False)
    (folder / "runs/quickstart/latest").symlink_to("last")
    (folder / "runs/fleet").symlink_to("quickstart")
    return folder


@pytest.fixture
def desk(small_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of these runs, from which commands are typed; sweeps run in this process, and nothing is drawn."""
    folder = tmp_path / "desk"
    shutil.copytree(small_runs, folder, symlinks=True)
    shutil.copytree(folder / "sweeps/loss", folder / "runs/old")
    (folder / "scenarios").symlink_to(ROOT / "scenarios")
    monkeypatch.chdir(folder)
    monkeypatch.setitem(RUNNERS, "local", InProcess)  # type: ignore[arg-type]
    monkeypatch.setattr("netdfl.study.plots.draw", lambda *drawn: None)
    return folder


def do(command: str, lines: list[str]) -> str:
    """Run a command of a page, smaller, with a shell's patterns; compare what it prints with what is shown.

    `doctor` may find that something must be done on the machine that runs this, and ends with 1 then.
    """
    more = " ".join(words for begin, words in SMALLER.items() if re.match(begin, command))
    program, *words = shlex.split(f"{command} {more}")
    assert program == "netdfl", f"{command}: no test here runs it"
    found = [path for word in words for path in (sorted(glob.glob(word)) or [word])]
    done = CliRunner().invoke(make_app(), found, env={"COLUMNS": "200"})
    well = (0, 1) if words == ["doctor"] else (0,)
    assert isinstance(done.exception, SystemExit | None), f"{command}\n{done.exception!r}"
    assert done.exit_code in well, f"{command}\n{done.output}"
    for line in lines:
        assert matches(line, done.output), f"`{command}` was to print\n{line}\nand printed\n{done.output}"
    return done.output


@pytest.mark.parametrize("page", [page for page in HERE if page != "metrics.md"])
def test_the_commands_of_the_page_run(page: str, desk: Path) -> None:
    done = [each for each in ALL if each.page == page and not reasons(each)]
    assert done
    if page == "resuming.md":
        (desk / "runs/quickstart/last/result.json").unlink()
    for each in done:
        do(each.command, each.lines if each.kind == "console" else [])


def test_the_commands_within_the_readmes_sentences_run(desk: Path) -> None:
    for command in INLINE:
        do(command, [])


def test_the_metrics_of_the_page_are_served(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []
    serve = uvicorn.Server.serve

    async def served(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        serving = asyncio.create_task(serve(server, sockets))
        token = (desk / "scrape.token").read_text().strip()
        address = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        answer, _ = await asyncio.to_thread(ask, address, "/metrics", authorization=f"Bearer {token}")
        answers.append(answer.status)
        server.should_exit = True
        await serving

    monkeypatch.setattr(uvicorn.Server, "serve", served)
    (shown,) = [each for each in ALL if each.page == "metrics.md" and not reasons(each)]
    do(shown.command, [])
    assert answers == [200]
