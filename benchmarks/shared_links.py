"""What sharing costs: CPU a message with fair uplinks, downlinks and core links, beside `sharing: fifo`.

    python benchmarks/shared_links.py [--nodes 100] [--rounds 60]

Nodes with ten neighbors each send vectors of 1 MB that claim their size, over links of 10 ms and access links of 10
Mbit/s. Each figure is of two runs of `netdfl run`, of one round and of `--rounds`: the difference of their CPU times by
that of their messages. The underlay is a ring of ten sites with core links of 1 Gbit/s. Prints a JSON list of rows.
The start of a run takes as much CPU time as thousands of messages, and not always the same: few rounds tell nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import Row, show

SITES = 10
UNDERLAY = {"links": {f"s{n}--s{(n + 1) % SITES}": {"latency": "5ms", "rate": "1Gbit"} for n in range(SITES)}}
Case = tuple[str, tuple[str, ...], dict[str, Any]]
CASES: tuple[Case, ...] = (("uplinks", ("uplink",), {}), ("uplinks and downlinks", ("uplink", "downlink"), {}))
CORE: Case = ("uplinks, downlinks and core links", ("uplink", "downlink"), {"underlay": UNDERLAY})


def scenario(nodes: int, rounds: int, links: tuple[str, ...], sharing: str) -> dict[str, Any]:
    """A fleet whose nodes share these links of theirs."""
    access = {link: {"rate": "10Mbit", "sharing": sharing} for link in links}
    return {
        "schema": "netdfl/1",
        "name": "shared-links",
        "nodes": nodes,
        "rounds": rounds,
        "world": {"kind": "simulated", "compute": "50ms"},
        "task": {"kind": "sized", "bytes": "1MB"},
        "algorithm": "dpsgd",
        "topology": {"kind": "random_sym", "neighbors": 10, "redraw_every": 0},
        "wait": {"for": "all", "deadline": "none"},
        "links": {"default": {"latency": "10ms"} | access},
        "record": {"messages": "every 1000th"},
    }


def cost(document: dict[str, Any]) -> tuple[float, int]:
    """The CPU seconds of a run in a process of its own, and its messages."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "scenario.json", Path(folder) / "run"
        file.write_text(json.dumps(document), encoding="utf-8")
        command = [sys.executable, "-m", "netdfl", "run", str(file), f"--out={out}", "--no-page"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"a run ended with status {os.waitstatus_to_exitcode(status)}")
        sent: int = json.loads((out / "result.json").read_text(encoding="utf-8"))["messages"]["sent"]
        return used.ru_utime + used.ru_stime, sent


def a_message(nodes: int, rounds: int, links: tuple[str, ...], sharing: str, more: dict[str, Any]) -> float:
    """The CPU time of a message in microseconds, without the start of a run."""
    (few_s, few), (many_s, many) = (cost(scenario(nodes, each, links, sharing) | more) for each in (1, max(2, rounds)))
    return (many_s - few_s) / (many - few) * 1e6


def rows(nodes: int, rounds: int) -> Iterator[Row]:
    """A row for each kind of sharing, beside the same links one after another."""
    fifo = {links: a_message(nodes, rounds, links, "fifo", {}) for _, links, _ in CASES}
    for name, links, more in (*CASES, CORE):
        fair = a_message(nodes, rounds, links, "fair", more)
        yield Row(f"{nodes} nodes, fair {name}", fair, "us", "fifo", fifo[links], fair / fifo[links])


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args()
    show(rows(args.nodes, args.rounds), f"{args.rounds} rounds")


if __name__ == "__main__":
    main()
