"""What the page of a run costs: to write, to hold, and to open in a browser.

    python benchmarks/page.py [--repeats 5] [--keep DIR] [--only NAME ...]

Prints a JSON list of rows, a run each: its messages, the page's size in MB, and CPU seconds, medians of the repeats,
each with the least and the most. `write` is `netdfl.report.html.write_report` in a process that has imported what every
run has (torch, NumPy, DuckDB); `open` is that of the browser's processes from asking for the page until 2.5 s later,
less that of an empty page. Runs are simulated once, and kept in DIR where it is given.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from figures import about

RUNS: dict[str, list[str]] = {
    "16 nodes, 30 rounds": ["scenarios/quickstart.yaml"],
    "16 nodes, 50 rounds": ["scenarios/under_loss.yaml"],
    "1,000 nodes, 50 rounds": ["benchmarks/thousand.yaml"],
    "10,000 nodes, 10 rounds": [
        *("benchmarks/thousand.yaml", "--set", "nodes=10000", "--set", "rounds=10"),
        *("--set", "events=[{at: 1s, for: 500ms, partition: [[0..4999], [5000..9999]]}]"),
    ],
}
WRITING = """
import sys, time
import duckdb, numpy, torch
import numpy.ma
from netdfl.report.html import write_report
began = time.process_time()
write_report(sys.argv[1])
print(time.process_time() - began)
"""
SETTLED_MS = 2500


def main() -> None:
    """Measure, and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path, help="where runs are kept, and found again")
    parser.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS), help="which of the runs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.keep or Path(folder)
        rows = [_row(name, _made(root, name), given.repeats) for name in given.only]
    print(about(f"medians of {given.repeats}"), file=sys.stderr)
    print(json.dumps(rows, indent=1))


def _made(root: Path, name: str) -> Path:
    out = root / name.replace(",", "").replace(" ", "_")
    if not (out / "result.json").is_file():
        command = [sys.executable, "-m", "netdfl", "run", *RUNS[name], "--on", "simulated", "--no-page"]
        subprocess.run([*command, "--out", str(out)], stdout=subprocess.DEVNULL, check=False)
    return out


def _row(name: str, run: Path, repeats: int) -> dict[str, object]:
    writing = [float(subprocess.check_output([sys.executable, "-c", WRITING, str(run)])) for _ in range(repeats)]
    page = run / "report.html"
    return {
        "run": name,
        "messages": json.loads((run / "result.json").read_text())["messages"]["sent"],
        "page_mb": round(page.stat().st_size / 1e6, 2),
        "write_cpu_s": _spread(writing),
        "open_cpu_s": _spread(_opening(page.resolve().as_uri(), repeats)),
    }


def _spread(values: Sequence[float]) -> list[float] | None:
    return [round(of, 3) for of in (median(values), min(values), max(values))] if values else None


def _opening(address: str, repeats: int) -> list[float]:
    """CPU seconds of the browser for each opening of a page, less those of an empty one; none without a browser."""
    path = shutil.which("chromium")
    if path is None:
        return []
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])

        def spent(where: str) -> float:
            page, before = browser.new_page(viewport={"width": 1280, "height": 900}), _below(os.getpid())
            page.goto(where)
            page.wait_for_timeout(SETTLED_MS)
            used = _below(os.getpid()) - before
            page.close()
            return used

        spent("about:blank")
        found = [spent(address) - spent("about:blank") for _ in range(repeats)]
        browser.close()
    return found


def _below(pid: int) -> float:
    """CPU seconds of all processes below one, and of those of theirs that have ended."""
    parents: dict[int, tuple[int, int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    found, todo = 0, [pid]
    while todo:
        parent = todo.pop()
        below = [each for each, (of, _) in parents.items() if of == parent]
        found += sum(parents[each][1] for each in below)
        todo += below
    return found / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
