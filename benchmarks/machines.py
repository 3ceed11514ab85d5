"""What a fleet on several machines costs, and whether the simulated world foresees it.

    python benchmarks/machines.py round [--repeats 3]
    python benchmarks/machines.py start [--nodes 100]
    python benchmarks/machines.py prediction [--rounds 20]

Machines are network namespaces of this one, with clocks and disks of their own, as in `tests/machines`; it needs root.

- `round`: a round of 16 nodes on two machines, beside the same fleet in `processes` on the same cores, by turns; with
  mutual TLS, as it is between machines, and without.
- `start`: from the command to the common start of a fleet on three machines, beside `processes`.
- `prediction`: eight nodes on two machines, whose cable carries 20 Mbit/s either way (tbf), beside what the simulated
  world says with `compute: measured` and links as the run measured its network. Links that share the way
  between the machines have an equal part of its rate. Exits 1 where the two differ by more than 10 %.

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from figures import Row, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import netdfl
from netdfl.worlds.processes import ProcessesWorld
from tests.machines.separated import Separated, ip

ENDS = "SELECT max(at_s) FROM metrics WHERE node IS NOT NULL GROUP BY round ORDER BY round"
BOUND = 0.10
FLEET: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "machines",
    "task": {"dataset": {"name": "digits", "partition": "iid"}, "model": {"name": "mlp", "hidden": [512, 256]}},
    "algorithm": {"name": "dfedavg", "lr": 0.1, "local_epochs": 1},
    "topology": "ring",
    "wait": {"deadline": "none"},
}
START: dict[str, Any] = FLEET | {
    "task": {"kind": "consensus", "dim": 10},
    "algorithm": "dpsgd",
    "rounds": 1,
    "world": {},
}
SHAPE = ("tbf", "rate", "20mbit", "burst", "32kb", "latency", "2s")


def on(machines: Separated, **more: object) -> dict[str, Any]:
    """The world of separated machines."""
    return {"kind": "tests.machines.separated:SEPARATED", "machines": machines.told, **more}


def played(scenario: Mapping[str, Any], world: Mapping[str, Any]) -> tuple[list[float], Mapping[str, Any]]:
    """When the last node ended each round of `scenario` in `world`, in seconds, and the run's result."""
    with tempfile.TemporaryDirectory() as directory:
        late = {} if world["kind"] == "simulated" else {"fidelity": {"relative": 100, "slack": "100s"}}
        done = netdfl.run({**scenario, "world": {**world, **late}}, out=Path(directory) / "run", page=False)
        return [ended for (ended,) in done.run.rows(ENDS)], done.result


def rounds(repeats: int, count: int) -> list[Row]:
    """A round on two machines beside one in processes; all four in each turn, and the median of the turns' ratios.

    The first round, in which nodes find each other, is a row of its own: later ones are what a run's length comes from.
    """
    scenario = FLEET | {"nodes": 16, "rounds": count, "evaluation": {"every": count, "local": "none"}}
    with Separated(2) as machines:
        here = {"processes": {"kind": "processes", "tls": False}, "processes, TLS": {"kind": "processes", "tls": True}}
        apart = {"two machines": on(machines, tls=False), "two machines, TLS": on(machines, tls=True)}
        worlds = here | apart
        turns = [{name: played(scenario, world)[0] for name, world in worlds.items()} for _ in range(repeats)]
    parts = {
        "the first round": [{name: 1e3 * ends[0] for name, ends in turn.items()} for turn in turns],
        "a later round": [
            {name: 1e3 * (ends[-1] - ends[0]) / (count - 1) for name, ends in turn.items()} for turn in turns
        ],
    }
    pairs = [(name, "processes") for name in apart] + [("two machines, TLS", "processes, TLS")]
    found = []
    for what, taken in parts.items():
        for name, beside in pairs:
            took, local = (statistics.median(turn[each] for turn in taken) for each in (name, beside))
            ratio = statistics.median(turn[name] / turn[beside] for turn in taken)
            found.append(Row(f"16 nodes on {name}, {what}", took, "ms", beside, local, ratio))
    return found


def start(nodes: int) -> list[Row]:
    """The start of a fleet on three machines beside one in processes."""
    scenario = START | {"nodes": nodes}
    with Separated(3) as machines:
        local, apart = (_start_s(scenario, world) for world in ({"kind": "processes", "tls": True}, on(machines)))
    title = f"start of {nodes} nodes on three machines"
    return [Row(title, apart, "s", "processes", local, apart / local)]


def _start_s(scenario: Mapping[str, Any], world: Mapping[str, Any]) -> float:
    """Seconds from the call to the fleet's common start: all but what came after it."""
    before, starts = time.monotonic(), list[float]()
    begin = ProcessesWorld.begin

    def noted(self: ProcessesWorld, at_ns: int) -> int:
        starts.append(time.monotonic())
        return begin(self, at_ns)

    ProcessesWorld.begin = noted  # type: ignore[method-assign]
    try:
        played(scenario, {**world, "start_timeout": "600s"})
    finally:
        ProcessesWorld.begin = begin  # type: ignore[method-assign]
    return starts[0] - before


def prediction(count: int) -> list[Row]:
    """Two machines with a shaped way between them beside what is foreseen of them."""
    scenario = FLEET | {"nodes": 8, "rounds": count, "evaluation": {"every": count, "local": "none"}}
    with Separated(2) as machines:
        for number in range(2):
            command = ["netns", "exec", machines.switch, "tc", "qdisc", "add", "dev", f"port{number}", "root", *SHAPE]
            ip(*command)
        (*_, measured), result = played(scenario, on(machines))
    links = as_measured(result["links"])
    print(json.dumps(links), file=sys.stderr)
    (*_, foreseen), _ = played({**scenario, "links": links}, {"kind": "simulated", "compute": "measured"})
    title = f"{count} rounds of 8 nodes on two machines, simulated"
    return [Row(title, foreseen, "s", "two machines, shaped", measured, foreseen / measured)]


def as_measured(told: Mapping[str, Any]) -> dict[str, Any]:
    """The links of a ring between machines as their run measured the network: shared ways in equal parts."""
    where = {node: name for name, nodes in told["machines"].items() for node in nodes}
    ways = {(way["src"], way["dst"]): way for way in told["network"]}
    count = len(where)
    edges = [(node, (node + step) % count) for node in range(count) for step in (-1, 1)]
    edges = [(src, dst % count) for src, dst in edges if where[src] != where[dst % count]]
    links = {}
    for src, dst in edges:
        way = ways[where[src], where[dst]]
        sharing = sum((where[a], where[b]) == (where[src], where[dst]) for a, b in edges)
        rate = f"{way['rate_bps'] / sharing / 1e6:.3f}Mbit"
        links[f"{src}->{dst}"] = {"latency": f"{way['round_trip_s'] / 2 * 1e3:.3f}ms", "rate": rate}
    return links


def main() -> None:
    """Print rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("round", "start", "prediction"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20, help="at least 2")
    parser.add_argument("--nodes", type=int, default=100)
    args = parser.parse_args()
    rows = {
        "round": lambda: rounds(args.repeats, args.rounds),
        "start": lambda: start(args.nodes),
        "prediction": lambda: prediction(args.rounds),
    }[args.what]()
    show(rows, f"{args.repeats} turns each" if args.what == "round" else "one run of each")
    sys.exit(args.what == "prediction" and abs(rows[0].ratio - 1) > BOUND)


if __name__ == "__main__":
    main()
