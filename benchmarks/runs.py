"""What a whole run costs: everything that `netdfl run` does, on training-free gossip.

    python benchmarks/runs.py [--nodes 8 100 1000] [--links delay rules] [--real 16 100 240] [--repeats 3]
        [--messages 20000] [--report] [--beside DIR | --budget | --write]

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. Times are CPU seconds, of a command
with its children, for the machine may be shared; medians of the repeats. Each case is a process of its own: it runs one
round from nothing, one round again, and then as many as send the messages asked for. A message's cost is what the last
has above the second: sending, mixing, record, status and verdict, and no start.

Links have a delay, with `rules` a delay that varies, loss and a rate. `--real` adds fleets of the world `processes`,
with a node in each process and with 24: there a run is a command, its CPU seconds those of all its processes, its
memory what they have at most of their own and of what they share (PSS).

A message is set beside a timer on a heap in plain Python, taken after it, which tells how fast the machine was. What it
calls is counted, too, which is the same on any machine. With `--beside DIR` everything is set beside the netdfl whose
source lies in DIR, run in turns with this one.

`runs_budget.json` says what each row may cost, as a ratio to what stands beside it, so that it holds on any machine:
what was measured and a quarter more, of what is counted a twentieth. With `--budget` the exit code is 1 where one costs
more; stderr says which. `--write` adds rows that the budget has not; those that it has stay until somebody takes them
out.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from calls import KINDS, calls_a_message
from figures import Row, show

ROOT = Path(__file__).resolve().parents[1]
BUDGET = Path(__file__).with_name("runs_budget.json")
GRAPHS = {"static": {"redraw_every": 0}, "redrawn": {"redraw_every": 1}}
LINKS = {
    "delay": {"latency": "20ms"},
    "rules": {"latency": {"dist": "lognormal", "mean": "20ms", "jitter": "5ms"}, "loss": "1%", "rate": "10Mbit"},
}
IN_A_PROCESS = (1, 24)
COUNTED = 36
"""The nodes of the fleet whose calls are counted."""
TIMERS = 200_000
MARGIN, MARGIN_OF_COUNTS, COUNTED_IN = 1.25, 1.05, "calls"
TWICE_TOLD = "a node and round"
"""A cost that another row has already: the budget has it once."""
Costs = Mapping[str, float]


def scenario(nodes: int, rounds: int, graph: str, links: str = "delay", in_a_process: int = 0) -> dict[str, Any]:
    """Training-free gossip, ten neighbors each, or as many as there are; simulated, or so many nodes in a process."""
    real = {"kind": "processes", "nodes_per_process": in_a_process}
    return {
        "schema": "netdfl/1",
        "name": f"{graph}-{nodes}",
        "nodes": nodes,
        "rounds": rounds,
        "topology": {"kind": "random_sym", "neighbors": neighbors(nodes), **GRAPHS[graph]},
        "algorithm": {"name": "dpsgd"},
        "task": {"kind": "consensus", "dim": 4},
        "links": {"default": LINKS[links]},
        "world": real if in_a_process else {"kind": "simulated"},
    }


def neighbors(nodes: int) -> int:
    """How many each node has."""
    return min(10, nodes // 2)


def measure(nodes: int, rounds: int, graph: str, links: str, report: bool) -> dict[str, float]:
    """The costs of one case, taken in this process."""
    loaded = cpu(lambda: import_module("torch"))
    base = peak_mb()
    import netdfl

    with tempfile.TemporaryDirectory() as directory:

        def run(name: str, rounds: int) -> float:
            out = Path(directory) / name
            return cpu(lambda: netdfl.run(scenario(nodes, rounds, graph, links), out=out, page=False))

        run("first", 1)
        first = time.process_time()
        again, whole = run("again", 1), run("whole", 1 + rounds)
        found = Path(directory) / "whole"
        result = netdfl.open_run(found).result
        sent = result["messages"]["sent"]
        extra = (whole - again) / (sent * rounds / (1 + rounds))
        costs = {
            "a message": 1e6 * extra,
            "a node and round": 1e6 * extra * sent / (nodes * (1 + rounds)),
            "to the end of one round": first,
            "one round more": again,
            "peak memory": peak_mb(),
            "disk, a message": sum(each.stat().st_size for each in found.rglob("*") if each.is_file()) / sent,
        }
        if report:
            from netdfl.report.html import write_report

            costs["report"] = cpu(lambda: write_report(found))
        beside = {"torch": loaded, "torch MB": base, "whole": whole, "timer": timer()}
        return costs | beside | {"on the wire": result["bytes_sent"] / sent}


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def timer() -> float:
    """Microseconds that a timer takes on a heap of many, once what was before is freed."""
    gc.collect()

    def work() -> None:
        heap: list[tuple[int, int, Callable[[], None]]] = []
        for number in range(TIMERS):
            heappush(heap, ((number * 7919) % TIMERS, number, work))
        while heap:
            heappop(heap)

    return 1e6 * cpu(work) / TIMERS


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process and its threads for `work`."""
    began = time.process_time()
    work()
    return time.process_time() - began


def apart(source: Path, *arguments: str) -> tuple[str, float]:
    """What a process with the netdfl in `source` prints, and the CPU seconds of it and its children."""
    before = os.times()
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=source,  # where `-m` looks first
        env=os.environ | {"PYTHONPATH": str(source.resolve())},
    )
    after = os.times()
    took = after.children_user + after.children_system - before.children_user - before.children_system
    return done.stdout, took


def case(source: Path, nodes: int, rounds: int, graph: str, links: str, report: bool) -> Costs:
    """The costs of one case."""
    more = ["--report"] if report else []
    printed, _ = apart(source, __file__, "--case", str(nodes), str(rounds), graph, links, *more)
    found: Costs = json.loads(printed)
    return found


def count() -> Costs:
    """What a message calls, counted in this process."""
    return calls_a_message(lambda rounds: scenario(COUNTED, rounds, "static"), COUNTED * neighbors(COUNTED))


def counted(source: Path) -> Costs:
    """What a message calls."""
    printed, _ = apart(source, __file__, "--count")
    return {**json.loads(printed), "message": 1.0}


def real(source: Path, nodes: int, rounds: int, in_a_process: int) -> Costs:
    """The costs of a fleet of processes: of a run of one round, and of more."""
    with tempfile.TemporaryDirectory() as directory:
        file, peaks = Path(directory) / "fleet.json", [0.0]

        def run(rounds: int) -> tuple[Costs, float]:
            file.write_text(json.dumps(scenario(nodes, rounds, "static", in_a_process=in_a_process)))
            out = f"{directory}/{rounds}"
            with sampled(peaks):
                _, took = apart(source, "-m", "netdfl", "run", str(file), "--no-page", f"--out={out}")
            return json.loads(Path(out, "result.json").read_text())["messages"], took

        (_, first), (messages, whole) = run(1), run(1 + rounds)
        extra = (whole - first) / (messages["sent"] * rounds / (1 + rounds))
        return {
            "a message": 1e6 * extra,
            "a node and round": 1e6 * extra * messages["sent"] / (nodes * (1 + rounds)),
            "to the end of one round": first,
            "peak memory": max(peaks),
            "torch": apart(source, "-c", "import torch")[1],
            "torch MB": peak_mb_of_torch(source),
            "timer": timer(),
        }


def peak_mb_of_torch(source: Path) -> float:
    """The most memory of a process that imports torch."""
    ask = "import torch, resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)"
    return float(apart(source, "-c", ask)[0])


@contextmanager
def sampled(peaks: list[float]) -> Iterator[None]:
    """Append the PSS of all of this process's descendants to `peaks`, some times a second."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.3):
            peaks.append(sum(map(pss_mb, descendants(os.getpid()))))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield
        finally:
            over.set()
            looking.result()


def descendants(pid: int) -> list[int]:
    """The processes below `pid`."""
    try:
        children = [
            int(each)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for each in (task / "children").read_text().split()
        ]
    except OSError:  # it has ended
        return []
    return children + [below for child in children for below in descendants(child)]


def pss_mb(pid: int) -> float:
    """A process's own memory and its part of what it shares; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("Pss:")), 0.0)


def shell(source: Path) -> Costs:
    """CPU seconds of whole commands, of a small scenario where they take one."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "small.json"  # JSON is YAML
        file.write_text(json.dumps(scenario(8, 10, "static")))
        run = ["run", str(file), "--no-page", f"--out={directory}/run"]
        commands = {"--help": ["--help"], "validate": ["validate", str(file)], "run --no-page": run}
        costs = {f"netdfl {name}": apart(source, "-m", "netdfl", *each)[1] for name, each in commands.items()}
        return costs | {"torch": apart(source, "-c", "import torch")[1]}


REFERENCES = {
    "a message": ("us", "a timer on a heap", "timer"),
    "a node and round": ("us", "a timer on a heap", "timer"),
    "to the end of one round": ("s", "import torch", "torch"),
    "one round more": ("s", "import torch", "torch"),
    "peak memory": ("MB", "with torch alone", "torch MB"),
    "disk, a message": ("bytes", "its bytes on the wire", "on the wire"),
    "report": ("s", "the run", "whole"),
    **dict.fromkeys(KINDS.values(), (COUNTED_IN, "a message", "message")),
    "netdfl --help": ("s", "import torch", "torch"),
    "netdfl validate": ("s", "import torch", "torch"),
    "netdfl run --no-page": ("s", "import torch", "torch"),
}
"""The unit of each cost, and what it is set beside where no other netdfl is asked for."""


def rows(args: argparse.Namespace) -> list[Row]:
    """All figures."""
    found = _rows("8 nodes", args, shell) + _rows(f"{COUNTED} nodes, static", args, counted)
    for nodes in args.nodes:
        rounds = max(2, args.messages // (nodes * neighbors(nodes)))
        for graph, links in product(GRAPHS, args.links):
            work = partial(case, nodes=nodes, rounds=rounds, graph=graph, links=links, report=args.report)
            found += _rows(f"{nodes:,} nodes, {graph}{'' if links == 'delay' else f', {links}'}", args, work)
    for nodes, in_a_process in product(args.real, IN_A_PROCESS):
        rounds = max(5, args.messages // (nodes * neighbors(nodes)))
        work = partial(real, nodes=nodes, rounds=rounds, in_a_process=in_a_process)
        found += _rows(f"{nodes:,} nodes, {in_a_process} a process", args, work)
    return found


def _rows(title: str, args: argparse.Namespace, work: Callable[[Path], Costs]) -> list[Row]:
    own, other = in_turns(args, work)
    found = []
    for cost, (unit, words, key) in REFERENCES.items():
        if cost in own:
            reference = own[key] if other is None else other[cost]
            beside = words if other is None else "the other netdfl"
            found.append(Row(f"{title}: {cost}", own[cost], unit, beside, reference, own[cost] / reference))
    return found


def in_turns(args: argparse.Namespace, work: Callable[[Path], Costs]) -> tuple[Costs, Costs | None]:
    """The medians of `work` here, and of the other netdfl where there is one."""
    sources = [ROOT, *([args.beside] if args.beside else [])]
    taken = [[work(source) for source in sources] for _ in range(args.repeats)]
    own, *others = [_medians([turn[place] for turn in taken]) for place in range(len(sources))]
    return own, others[0] if others else None


def _medians(costs: Sequence[Costs]) -> Costs:
    return {name: statistics.median(each[name] for each in costs) for name in costs[0]}


def over_budget(rows: Sequence[Row], budget: Mapping[str, float]) -> list[str]:
    """A sentence for each row that costs more than it may."""
    return [
        f"{row.name}: {row.ratio:.3g} times {row.reference}, and may cost {budget[row.name]:.3g}"
        for row in rows
        if row.ratio > budget.get(row.name, math.inf)
    ]


def with_new_rows(rows: Sequence[Row], budget: Mapping[str, float]) -> dict[str, float]:
    """Return the budget with bounds for rows that it has not."""
    bounds = dict(budget)
    for row in rows:
        if not row.name.endswith(f": {TWICE_TOLD}"):
            margin = MARGIN_OF_COUNTS if row.unit == COUNTED_IN else MARGIN
            bounds.setdefault(row.name, float(f"{row.ratio * margin:.3g}"))
    return bounds


def main() -> None:
    """Print a JSON list of rows, or, in a process of its own, the costs of one case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 100, 1000])
    parser.add_argument("--links", choices=LINKS, nargs="+", default=["delay"])
    parser.add_argument("--real", type=int, nargs="*", default=[], metavar="NODES")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--budget", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", nargs="+", metavar="NODES ROUNDS GRAPH [LINKS]")
    parser.add_argument("--count", action="store_true")
    args = parser.parse_args()
    if args.count:
        print(json.dumps(count()))
        return
    if args.case:
        nodes, rounds, graph, links = (*args.case, "delay")[:4]
        print(json.dumps(measure(int(nodes), int(rounds), graph, links, args.report)))
        return
    if (args.budget or args.write) and args.beside:
        parser.error("the budget bounds what rows cost beside this machine, not beside another netdfl: leave one out")
    found, budget = rows(args), json.loads(BUDGET.read_text())
    show(found, f"medians of {args.repeats}")
    if args.write:
        BUDGET.write_text(json.dumps(with_new_rows(found, budget), indent=1) + "\n")
    over = over_budget(found, budget) if args.budget else []
    print("\n".join(over), file=sys.stderr)
    raise SystemExit(bool(over))


if __name__ == "__main__":
    main()
