"""Shared links by the model against packets over real TCP, by the figures of groups; needs network namespaces.

python -m tests.soak.shared_packets [--runs 10] [--only four] [--kept build/shared_packets] [--page docs/fidelity.md]

Traffic: the mean and the last arrival of all messages, the mean of `--runs` runs over packets against the model. The
four flows are also compared with real processes over emulated links, whose times count no headers and are multiplied by
1500/1448. Fleets: whole runs in `simulated` with `loss_layer: packet` and in `namespaces`, of which the median round
(of five runs), the final accuracy and the bottleneck are compared. What was measured is kept, so an interrupted command
goes on where it was; at its end it writes the table into the page, and a line of the tally. About 35 minutes in all,
most of it waiting.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

import netdfl
from tests.links.shared_traffic import SCENARIOS
from tests.soak.disturbed import DisturbedError
from tests.soak.packet_traffic import MB, Group, S, Traffic
from tests.soak.shared_networks import Arrivals, Nodes
from tests.soak.tally import Count, append

BEGIN, END = "<!-- shared packets: begin -->", "<!-- shared packets: end -->"
RTT = {"latency": "20ms"}


def access(rate: float, products: float = 1) -> dict[str, Any]:
    """A rate in Mbit/s with a queue of so many products of bandwidth and round trip (40 ms)."""
    return {"rate": f"{rate}Mbit", "queue": f"{round(rate * 5000 * products)}B"}


def core(rate: float) -> dict[str, Any]:
    """A core link without a delay of its own, as the links of nodes have one."""
    return access(rate)


FOUR = {"0": {"uplink": access(10)}, "default": RTT}
SIXTEEN = {f"{4 * n}..{4 * n + 3}": "abcd"[n] for n in range(4)}
FOUR_FLOWS = "four flows"
BY_PROCESSES = "four flows, by `processes` times 1500/1448"
HEADERS = 1500 / 1448
"""The bytes of a packet, for each byte of a message in it."""
TRAFFIC: dict[str, tuple[Traffic, float]] = {
    FOUR_FLOWS: (Traffic([(0, 0, d, 2_500_000) for d in (1, 2, 3, 4)], FOUR), 0.1),
    "staggered starts": (Traffic([(1.5 * d, 0, 1 + d, 6_100_000) for d in range(4)], FOUR), 0.15),
    "unlike sizes": (Traffic([(0, 0, d, (1 + d) * 800_000) for d in (1, 2, 3, 4)], FOUR), 0.15),
    "up and down at once": (
        Traffic(
            [(0, 0, 1, 4 * MB), (0, 2, 1, 4 * MB), (0, 0, 3, 4 * MB)],
            {"0": {"uplink": access(10)}, "2": {"uplink": access(8)}, "1": {"downlink": access(10)}, "default": RTT},
        ),
        0.15,
    ),
    "a rate that changes": (
        Traffic(
            [(0, 0, d, 2 * MB) for d in (1, 2, 3, 4)],
            FOUR,
            events=[{"at": 3, "node": "0", "uplink": access(5)}],
        ),
        0.15,
    ),
    "a cut of 1 s": (
        Traffic(
            [(0, 0, d, 2_500_000) for d in (1, 2, 3, 4)],
            FOUR,
            events=[{"at": 3, "for": "1s", "link": "0->1", "state": "down_drop"}],
        ),
        0.15,
    ),
    "a lossy link": (
        Traffic([(0, 0, d, 2_500_000) for d in (1, 2, 3, 4)], FOUR | {"0->1": RTT | {"loss": "0.1%"}}),
        0.15,
    ),
    "two bottlenecks in a row": (
        Traffic(
            [(0, 0, 2, 2 * MB), (0, 0, 3, 4 * MB), (0, 1, 3, 4 * MB)],
            {"0": {"uplink": access(8)}, "3": {"downlink": access(10)}, "2": {"downlink": access(3)}, "default": RTT},
        ),
        0.15,
    ),
    "core links with cross traffic": (
        Traffic(
            [(0, 0, 2, 6_500_000), (0, 1, 3, 3_200_000), (6, 4, 5, 3_400_000)],
            {"default": RTT | {"uplink": access(8), "downlink": access(10)}},
            {
                "links": {"a--b": core(10), "b--c": core(10)},
                "place": {"0..1": "a", "2": "c", "3..4": "b", "5": "c"},
            },
        ),
        0.15,
    ),
    "traffic of 16 nodes on 4 sites": (
        Traffic(
            [(0, n, (n + 4) % 16, 1_600_000) for n in range(16)] + [(0, n, n ^ 1, 4 * MB) for n in range(0, 16, 2)],
            {"default": RTT | {"uplink": access(8), "downlink": access(8)}},
            {"links": {name: core(8) for name in ("a--b", "b--c", "c--d", "a--d")}, "place": SIXTEEN},
        ),
        0.15,
    ),
    "a queue of 64 packets before a core link": (
        Traffic(
            [(0, 0, 2, 4 * MB), (0, 1, 3, 4 * MB)],
            {"default": RTT},
            {"links": {"a--b": core(10) | {"queue": "96000B"}}, "place": {"0..1": "a", "2..3": "b"}},
        ),
        0.15,
    ),
}

FLEET: dict[str, Any] = {
    "schema": "netdfl/1",
    "rounds": 4,
    "task": {
        "dataset": {"name": "digits", "partition": {"kind": "iid"}},
        "model": {"name": "mlp", "hidden": [768, 384]},
        "batch_size": 32,
    },
    "algorithm": {"name": "dpsgd", "lr": 0.1},
    "wait": {"for": "all", "deadline": "none"},
}
RING = {"a--b": 10, "b--c": 10, "c--d": 10, "a->d": 5, "d->a": 7}
FLEETS: dict[str, dict[str, Any]] = {
    f"{nodes} nodes on 4 sites": FLEET
    | {
        "name": f"fleet-{nodes}",
        "nodes": nodes,
        "topology": "ring" if nodes == 4 else "torus",
        "underlay": {"links": {name: RTT | access(rate, 4 if nodes == 4 else 1) for name, rate in RING.items()}},
    }
    for nodes in (4, 8, 16)
}
FLEETS["4 nodes on 4 sites"]["task"] = FLEET["task"] | {"model": {"name": "mlp", "hidden": [1024, 768]}}
"""Four nodes have one flow each way on a core link, which a short queue leaves unused where acknowledgements wait in
the queue of the way back (`beyond_the_model.py`). So the queues are longer, and the models larger: each begins anew."""


def fleet(name: str, world: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """One whole run: its rounds' median, accuracy, bottleneck, and computation.

    Raises DisturbedError where packets were late, and AssertionError where it broke off.
    """
    with tempfile.TemporaryDirectory() as folder:
        scenario = netdfl.load(FLEETS[name] | {"world": world} | changes)
        result = netdfl.run(scenario, out=Path(folder) / "run", page=False).result
    if result["verdict"] == "unknown":
        raise DisturbedError("; ".join(result["reasons"]))
    assert not result["reasons"], result["reasons"]
    rounds = [each for each in result["time"]["rounds"]["median_s"] if each is not None]
    narrow = result["time"].get("bottleneck") or {}
    accuracy = result["test_accuracy"]["average_model"]["last"]
    compute_s = result["time"]["compute_s"] / len(rounds)
    return {"round_s": median(rounds), "accuracy": accuracy, "bottleneck": narrow.get("link"), "compute_s": compute_s}


def by_processes() -> Group:
    """Send the four flows between real processes over emulated links, and count the headers that packets have.

    Raises DisturbedError.
    """
    name = "four at once"

    async def play() -> tuple[dict[int, float], Arrivals]:
        async with Nodes(5) as nodes:
            return await nodes.play(name, SCENARIOS[name])

    _, arrivals = asyncio.run(play())
    return with_headers(arrivals)


def with_headers(arrivals: Arrivals) -> Group:
    """The figures of arrivals in ns, each later by the headers of its packets. Asserts that none is lost."""
    came = {n: at_ns / S * HEADERS for n, at_ns in arrivals.items() if at_ns is not None}
    assert len(came) == len(arrivals), "a message was lost"
    return Group.of(came)


class Kept:
    """What was measured, a line each, in a file that a later command reads."""

    def __init__(self, folder: Path) -> None:
        """Read what is there."""
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "measured.jsonl"
        lines = self._file.read_text().splitlines() if self._file.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def of(self, name: str) -> list[dict[str, Any]]:
        """The measurements of one cell."""
        return [row for row in self.rows if row["cell"] == name]

    def add(self, name: str, **figures: Any) -> None:
        """Keep one measurement."""
        self.rows.append({"cell": name, **figures})
        with self._file.open("a") as out:
            out.write(json.dumps(self.rows[-1]) + "\n")
        print(self.rows[-1], flush=True)


def measure(kept: Kept, runs: int, only: str) -> None:
    """Make what is missing of the cells whose names have `only` in them."""
    for name, (traffic, _) in TRAFFIC.items():
        while only in name and len(kept.of(name)) < runs:
            with counted_unless_disturbed(name), tempfile.TemporaryDirectory() as folder:
                kept.add(name, **traffic.over_packets(Path(folder))._asdict())
    while FOUR_FLOWS in TRAFFIC and only in BY_PROCESSES and len(kept.of(BY_PROCESSES)) < runs:
        with counted_unless_disturbed(BY_PROCESSES):
            kept.add(BY_PROCESSES, **by_processes()._asdict())
    for name in FLEETS:
        while only in name and len(kept.of(name)) < 5:
            with counted_unless_disturbed(name):
                kept.add(name, **fleet(name, {"kind": "namespaces"}))


@contextmanager
def counted_unless_disturbed(name: str) -> Iterator[None]:
    """Say so where the machine was too busy for a measurement of `name`, which then is made again."""
    try:
        yield
    except DisturbedError as disturbed:
        print(f"{name}: not counted: {disturbed}", flush=True)


def table(kept: Kept) -> tuple[list[str], bool]:
    """The table of what was measured, and whether all of it is within its bounds."""
    rows = ["| traffic | runs | mean, s | model | | last, s | model | | |", "|---|---|---|---|---|---|---|---|---|"]
    traffic, fleets = list(_traffic(kept)), list(_fleets(kept))
    rows += [line for line, _ in traffic]
    if fleets:
        rows += [
            "",
            "| fleet | runs | round, s | model | | accuracy | model | bottleneck | model | |",
            "|" + "---|" * 10,
        ]
        rows += [line for line, _ in fleets]
    return rows, all(within for _, within in [*traffic, *fleets])


def _traffic(kept: Kept) -> Iterator[tuple[str, bool]]:
    for name, (traffic, bound) in TRAFFIC.items():
        if not (found := kept.of(name)):
            continue
        real = _mean(found)
        others = {name: (found, traffic.by_model())}
        if name == FOUR_FLOWS and (over_grpc := kept.of(BY_PROCESSES)):
            others[BY_PROCESSES] = over_grpc, _mean(over_grpc)
        for each, (rows, group) in others.items():
            line, within = compared(real, group, bound)
            yield f"| {each} | {len(rows)} | {line} |", within


def _mean(rows: Sequence[dict[str, Any]]) -> Group:
    return Group(fmean(row["mean_s"] for row in rows), fmean(row["last_s"] for row in rows))


def compared(real: Group, model: Group, bound: float) -> tuple[str, bool]:
    """The cells of one row, and whether both figures are within the bound."""
    off = [ours / theirs - 1 for ours, theirs in zip(model, real, strict=True)]
    within = max(map(abs, off)) <= bound
    figures = [f"{theirs:.2f} | {ours:.2f} | {by:+.0%}" for theirs, ours, by in zip(real, model, off, strict=True)]
    return " | ".join([*figures, "" if within else f"beyond {bound:.0%}"]), within


def _fleets(kept: Kept) -> Iterator[tuple[str, bool]]:
    for name in FLEETS:
        if not (found := kept.of(name)):
            continue
        compute = f"{round(1000 * median(row['compute_s'] for row in found))}ms"
        model = fleet(name, {"kind": "simulated", "loss_layer": "packet", "compute": compute})
        round_s = median(row["round_s"] for row in found)
        off = model["round_s"] / round_s - 1
        accuracies, narrow = {row["accuracy"] for row in found}, {str(row["bottleneck"]) for row in found}
        wrong = ["beyond 15%"] * (abs(off) > 0.15) + ["other accuracy"] * (accuracies != {model["accuracy"]})
        wrong += ["other bottleneck"] * (narrow != {str(model["bottleneck"])})
        said = ", ".join(f"{each:.4f}" for each in sorted(accuracies))
        figures = [name, len(found), f"{round_s:.2f}", f"{model['round_s']:.2f}", f"{off:+.0%}", said]
        figures += [f"{model['accuracy']:.4f}", ", ".join(sorted(narrow)), model["bottleneck"], ", ".join(wrong)]
        yield "| " + " | ".join(map(str, figures)) + " |", not wrong


def write(page: Path, rows: Sequence[str], marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Put the table between its marks in the page."""
    before, begin, rest = page.read_text(encoding="utf-8").partition(marks[0])
    _, end, after = rest.partition(marks[1])
    assert (bool(begin), bool(end)) == (True, True), f"{page} has no place for the table"
    page.write_text(f"{before}{begin}\n\n" + "\n".join(rows) + f"\n\n{end}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the table and, of a whole run, a line of the tally; return 1 where something is beyond its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--kept", type=Path, default=Path("build/shared_packets"))
    parser.add_argument("--page", type=Path, default=Path("docs/fidelity.md"))
    chosen = parser.parse_args(arguments)
    kept = Kept(chosen.kept)
    measure(kept, chosen.runs, chosen.only)
    rows, good = table(kept)
    print("\n".join(rows))
    write(chosen.page, rows)
    if not chosen.only:
        append("traffic and fleets on shared links over packets, by the model within its bounds", counted(rows), 0)
    return not good


def counted(rows: Sequence[str]) -> Count:
    """The rows of the table with figures; wrong are those whose last cell says how."""
    lines = [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows]
    lines = [line for line in lines if line and line[0] not in ("traffic", "fleet") and set(line[0]) != {"-"}]
    return Count(len(lines), [f"{line[0]}: {line[-1]}" for line in lines if line[-1]])


if __name__ == "__main__":
    sys.exit(main())
