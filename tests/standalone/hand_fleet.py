"""Real processes of `netdfl node` for tests, forked from one that has torch loaded; and free ports for them."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Collection
from contextlib import ExitStack
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from netdfl.scenario.load import loads
from netdfl.standalone.credentials import write_credentials
from netdfl.worlds import preload

END_S = 120


PYTHON = sys.executable
"""Other tests put another in its place for a while, and multiprocessing takes the one that it finds first."""


def context() -> ForkServerContext:
    """Processes that begin with everything loaded but grpc."""
    found = multiprocessing.get_context("forkserver")
    found.set_executable(PYTHON)
    found.set_forkserver_preload(["netdfl.standalone.request", "netdfl.cli.commands", *preload.MODULES])
    return found


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def become(arguments: list[str], log: str, packages: str, data: str) -> None:
    """In the new process: run the command line, where what is installed in `packages` comes first.

    It looks for data in the folder `data`, if that is given.
    """
    if data:
        os.environ["NETDFL_DATA"] = data
    if packages:
        sys.path.insert(0, packages)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    sys.argv = ["netdfl", *arguments]
    from netdfl.cli import main

    main()


class HandFleet:
    """Nodes by hand in `folder`: one process each, which the test starts, stops and starts again.

    Each has its file of `credentials`, from which a test may take one away: that node speaks plain text, openly. One
    that ends in `.secret` has its node prove that secret in plain text.
    """

    def __init__(self, folder: Path, scenario: str, nodes: int, *, timeout: str = "60s") -> None:
        self.folder, self.timeout = folder, timeout
        self.ports = free_ports(nodes)
        self.running: dict[int, BaseProcess] = {}
        folder.mkdir(exist_ok=True)
        (folder / "scenario.yaml").write_text(scenario, encoding="utf-8")
        peers = {node: f"localhost:{port}" for node, port in enumerate(self.ports)}
        (folder / "peers.json").write_text(json.dumps(peers), encoding="utf-8")
        files = write_credentials(loads(scenario), folder / "credentials")
        self.credentials = dict(enumerate(files[:nodes]))
        self.secret = files[nodes]

    def start(
        self, *nodes: int, scenario: str = "scenario.yaml", packages: Path | str = "", data: Path | str = ""
    ) -> None:
        for node in nodes:
            arguments = {
                "--scenario": self.folder / scenario,
                "--id": node,
                "--listen": f"127.0.0.1:{self.ports[node]}",
                "--peers": self.folder / "peers.json",
                "--out": self.directory(node),
                "--start-timeout": self.timeout,
            }
            mine = self.credentials.get(node)
            plain = mine is None or mine.suffix == ".secret"
            proof = (
                [f"--credentials={mine}"]
                if not plain
                else ["--no-tls", *([] if mine is None else [f"--secret={mine}"])]
            )
            words = ["node", *(str(word) for pair in arguments.items() for word in pair), *proof]
            process = context().Process(target=become, args=(words, str(self.log(node)), str(packages), str(data)))
            process.start()
            self.running[node] = process

    def end(self, *nodes: int) -> dict[int, int | None]:
        """Wait for the nodes (all, by default); their exit codes."""
        return {node: self.ended(node) for node in nodes or sorted(self.running)}

    def ended(self, node: int) -> int | None:
        process = self.running.pop(node)
        process.join(END_S)
        code = process.exitcode
        if code is None:
            process.kill()
            process.join()
        return code

    def kill_all(self) -> None:
        for process in self.running.values():
            process.kill()
            process.join()

    def directory(self, node: int) -> Path:
        return self.folder / "nodes" / str(node)

    def log(self, node: int) -> Path:
        return self.folder / f"{node}.log"

    def logs(self, nodes: Collection[int]) -> str:
        return "\n".join(self.log(node).read_text(encoding="utf-8") for node in nodes)
