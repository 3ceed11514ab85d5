"""What a model without queues of packets can't have, measured over TCP beside the model; needs network namespaces.

python -m tests.soak.beyond_the_model [--runs 3] [--only deep] [--kept build/beyond_the_model] [--page docs/fidelity.md]

Acknowledgements that wait in a full uplink, deep queues, unlike round trips, and what two full queues take from a
flow. Nothing is bounded here: the table says how far the model is from packets. What was measured is kept, so an
interrupted command goes on where it was. About four minutes in all, most of it waiting.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tests.soak.packet_traffic import MB, Traffic
from tests.soak.shared_packets import RTT, Kept, access, counted_unless_disturbed, write

MARKS = "<!-- beyond the model: begin -->", "<!-- beyond the model: end -->"

SHORT = "20 kB, 4 s later"


class Case(NamedTuple):
    """Traffic, and the groups of its messages by their names in the table; a message is known by its place."""

    traffic: Traffic
    groups: Mapping[str, Sequence[int]]


def both_ways(there: Mapping[str, Any], back: Mapping[str, Any], back_bytes: int) -> Case:
    """One flow each way between two nodes with these uplinks."""
    links = {"0": {"uplink": dict(there)}, "1": {"uplink": dict(back)}, "default": RTT}
    return Case(Traffic([(0, 0, 1, 6_500_000), (0, 1, 0, back_bytes)], links), {"there": [0], "back": [1]})


def behind(queue: str) -> Case:
    """A short message that leaves 4 s after four long ones to other nodes, over an uplink of 10 Mbit/s."""
    links = {"0": {"uplink": {"rate": "10Mbit", "queue": queue}}, "default": RTT}
    messages = [*((0, 0, dst, 2_500_000) for dst in (1, 2, 3, 4)), (4, 0, 5, 20_000)]
    return Case(Traffic(messages, links), {"four of 2.5 MB": [0, 1, 2, 3], SHORT: [4]})


CASES: dict[str, Case] = {
    "one flow each way, 10 Mbit/s": both_ways(access(10), access(10), 6_500_000),
    "one flow each way, queues of two products": both_ways(access(10, 2), access(10, 2), 6_500_000),
    "one flow each way, 10 there and 1 Mbit/s back": both_ways(access(10), access(1, 10), 650_000),
    "a queue of 50 kB": behind("50kB"),
    "a deep queue, of 1 MB": behind("1MB"),
    "round trips of 20 and 200 ms on one uplink": Case(
        Traffic(
            [(0, 0, 1, 4 * MB), (0, 0, 2, 4 * MB)],
            {"0": {"uplink": access(10)}, "default": {"latency": "10ms"}, "0--2": {"latency": "100ms"}},
        ),
        {"20 ms": [0], "200 ms": [1]},
    ),
    "a flow through two full queues": Case(
        Traffic(
            [(0, 0, 2, 4 * MB), (1, 1, 3, 3_200_000), (0, 3, 2, 4 * MB)],
            {"default": RTT | {"uplink": access(8), "downlink": access(10)}},
            {"links": {"a--b": access(10)}, "place": {"0..1": "a", "2..3": "b"}},
        ),
        {"through both": [0], "through one of them": [1, 2]},
    ),
}


def measure(kept: Kept, runs: int, only: str) -> None:
    """Make what is missing of the cases whose names have `only` in them."""
    for name, (traffic, _) in CASES.items():
        while only in name and len(kept.of(name)) < runs:
            with counted_unless_disturbed(name), tempfile.TemporaryDirectory() as folder:
                lasted = traffic.lasted(traffic.arrivals_over_packets(Path(folder)))
                kept.add(name, lasted_s=[lasted[n] for n in sorted(lasted)])


def table(kept: Kept) -> list[str]:
    """A row for each group of messages of each case that was measured."""
    rows = ["| traffic | messages | runs | over packets, s | model, s | |", "|---|---|---|---|---|---|"]
    for name, case in CASES.items():
        if found := kept.of(name):
            rows += _rows(name, case, [row["lasted_s"] for row in found])
    return rows


def _rows(name: str, case: Case, lasted_s: Sequence[Sequence[float]]) -> Iterator[str]:
    model = case.traffic.lasted(case.traffic.arrivals_by_model())
    for group, places in case.groups.items():
        real_s, model_s = fmean(run[n] for run in lasted_s for n in places), fmean(model[n] for n in places)
        yield f"| {name} | {group} | {len(lasted_s)} | {real_s:.2f} | {model_s:.2f} | {model_s / real_s - 1:+.0%} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write the table into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--kept", type=Path, default=Path("build/beyond_the_model"))
    parser.add_argument("--page", type=Path, default=Path("docs/fidelity.md"))
    chosen = parser.parse_args(arguments)
    kept = Kept(chosen.kept)
    measure(kept, chosen.runs, chosen.only)
    print("\n".join(table(kept)))
    write(chosen.page, table(kept), MARKS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
