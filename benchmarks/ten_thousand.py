"""Ten thousand nodes for a day: what scenarios/studies/ten_thousand.yaml shows, by gossip and by push-sum.

    python benchmarks/ten_thousand.py [--write] [--set KEY=VALUE ...]

Each method is a run of `netdfl run` in a process of its own. Prints what they came to, as JSON; `--write` puts that in
docs/studies/ten_thousand.json, and its table into the page beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import netdfl
from netdfl.core.units import format_bytes
from netdfl.record.run import Run
from netdfl.report.words import duration

ROOT = Path(__file__).resolve().parents[1]
SCENARIO = ROOT / "scenarios" / "studies" / "ten_thousand.yaml"
PAGE = ROOT / "docs" / "studies" / "ten_thousand.md"
METHODS = {"gossip": "dpsgd", "push-sum": "sgp"}
BEGIN, END = "<!-- figures: python benchmarks/ten_thousand.py --write -->\n", "<!-- end -->"
Figures = dict[str, Any]


def measure(algorithm: str, sets: Sequence[str]) -> Figures:
    """What one method came to, and what its run cost."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = [word for each in (f"algorithm={algorithm}", *sets) for word in ("--set", each)]
        command = [sys.executable, "-m", "netdfl", "run", str(SCENARIO), f"--out={out}", "--no-page", *words]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        run = netdfl.open_run(out)
        nbytes = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        cost = {"exit": os.waitstatus_to_exitcode(status), "cpu_s": used.ru_utime + used.ru_stime}
        return figures(run) | cost | {"peak_mb": used.ru_maxrss / 1000, "disk_bytes": nbytes}


def figures(run: Run) -> Figures:
    """What a run came to."""
    result = run.result
    ((missing, rounds),) = run.rows(
        "SELECT (SELECT count(*) FROM events WHERE kind = 'missing'), "
        "(SELECT count(*) FROM metrics WHERE name = 'round_s' AND node IS NOT NULL)"
    )
    kept = ("verdict", "nodes", "rounds", "messages", "bytes_sent", "virtual_duration_s", "weight_sum", "timeouts")
    return {name: result[name] for name in kept} | {
        "error": result["error"],
        "consensus": [
            value
            for (value,) in run.rows(
                "SELECT value FROM metrics WHERE node IS NULL AND name = 'consensus_distance' ORDER BY round"
            )
        ],
        "round_s": result["time"]["rounds"]["median_s"],
        "recorded": result["recorded"]["messages"],
        "went_without": missing / max(1, rounds),
        "hash": result["event_log_hash"],
    }


def table(found: Mapping[str, Figures]) -> str:
    """The figures of all methods, in Markdown."""
    rows: dict[str, Callable[[Figures], str]] = {
        "virtual time": lambda f: duration(f["virtual_duration_s"]),
        "a round, median node, first and last": lambda f: f"{duration(f['round_s'][0])}, {duration(f['round_s'][-1])}",
        "messages": lambda f: f"{f['messages']['sent']:,}",
        "bytes": lambda f: format_bytes(f["bytes_sent"]),
        "bytes a node": lambda f: format_bytes(f["bytes_sent"] / f["nodes"]),
        "undeliverable: who was to get it was away": lambda f: share(f, "undeliverable"),
        "late": lambda f: share(f, "late"),
        "rounds that went on without somebody": lambda f: f"{f['went_without']:.0%}",
        "consensus distance after each round": lambda f: ", ".join(f"{value:.2g}" for value in f["consensus"]),
        "error of the average model": lambda f: f"{f['error']:.2g}",
        "push-sum weight left": lambda f: "–" if f["weight_sum"] is None else f"{f['weight_sum']:.4f}",
        "CPU seconds": lambda f: f"{f['cpu_s']:.0f}",
        "CPU a message": lambda f: f"{1e6 * f['cpu_s'] / f['messages']['sent']:.0f} us",
        "peak memory": lambda f: f"{f['peak_mb']:,.0f} MB",
        "rows of messages recorded": lambda f: f"{f['recorded']:,}",
        "run directory": lambda f: format_bytes(f["disk_bytes"]),
    }
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    lines += [f"| {name} | {' | '.join(say(each) for each in found.values())} |" for name, say in rows.items()]
    return "\n".join(lines) + "\n"


def share(found: Figures, name: str) -> str:
    """Messages of one class, and which part of all they are."""
    number, sent = found["messages"][name], found["messages"]["sent"]
    return f"{number:,} ({number / sent:.1%})"


def write(found: Mapping[str, Figures]) -> None:
    """Put the figures beside the page and the table into it."""
    PAGE.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    block = f"{BEGIN}\n{table(found)}\n{END}"
    PAGE.write_text(re.sub(f"{re.escape(BEGIN)}.*?{END}", lambda _: block, page, flags=re.S), encoding="utf-8")


def main() -> None:
    """Run both, print what they came to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--set", action="append", default=[], dest="sets")
    args = parser.parse_args()
    found = {name: measure(algorithm, args.sets) for name, algorithm in METHODS.items()}
    print(json.dumps(found, indent=1))
    if args.write:
        write(found)


if __name__ == "__main__":
    main()
