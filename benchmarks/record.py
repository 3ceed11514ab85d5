"""What the record costs as JSON lines and as Parquet: bytes, rolling it up, queries.

    python benchmarks/record.py [--messages 1000000] [--repeats 3]

Prints a JSON list of rows: name, value, unit, reference, reference_value, ratio. Times are CPU seconds, medians of the
repeats; what is read as Parquet is set beside the same as lines.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from figures import Row, show

from netdfl.core.fates import LOSS, Fate
from netdfl.core.outcome import Outcome
from netdfl.core.types import Kind, MessageId, StepId
from netdfl.record.run import Run, open_run
from netdfl.record.store import StoreWriter

QUERIES = {
    "count all": "SELECT count(*), sum(nbytes) FROM messages",
    "count by fate": "SELECT fate, count(*) FROM messages GROUP BY fate",
    "delays by link": "SELECT src, dst, median(arrived_s - sent_s) FROM messages GROUP BY ALL",
}
NODES, NEIGHBORS, MS = 1000, 10, 1_000_000


def write(path: Path, messages: int) -> Run:
    """A record of gossip with ten neighbors, a hundredth lost."""
    rng = random.Random(1)
    (path / "scenario.yaml").write_text("name: record\n")
    with StoreWriter(path, "fleet") as store:
        for number in range(messages):
            round, place = divmod(number, NODES * NEIGHBORS)
            src, turn = divmod(place, NEIGHBORS)
            sent = 100 * MS * round + rng.randrange(MS)
            lost = rng.random() < 0.01
            arrived = None if lost else sent + 20 * MS + rng.randrange(5 * MS)
            edge, id = (src, (src + 7 * turn + 1) % NODES), MessageId(Kind.DATA, 0, StepId(round, 0), 0, 0)
            fate = Fate.dropped(LOSS) if lost else Fate.DELIVERED
            store.outcome(Outcome((edge,), id, 4217, sent, arrived, fate))
    return open_run(path)


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of `work`."""
    began = time.process_time()
    work()
    return time.process_time() - began


def queries(run: Run) -> dict[str, float]:
    """What each query takes."""
    return {name: cpu(partial(run.rows, sql)) for name, sql in QUERIES.items()}


def measure(messages: int) -> dict[str, tuple[float, float]]:
    """Each cost as Parquet, and as lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        run = write(path, messages)
        run.rows("SELECT 1")  # the database is open
        lines, nbytes = queries(run), size(path)
        rolling = cpu(run.roll_up)
        found = {name: (took, lines[name]) for name, took in queries(run).items()}
        found |= {"bytes a message": (size(path) / messages, nbytes / messages)}
        return found | {"rolling up": (rolling, lines["count all"])}


def size(path: Path) -> int:
    """The store's bytes."""
    return sum(file.stat().st_size for file in (path / "store").iterdir())


def main() -> None:
    """Print a JSON list of rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    taken = [measure(args.messages) for _ in range(args.repeats)]
    rows = []
    for name in taken[0]:
        own, other = (statistics.median(each[name][place] for each in taken) for place in range(2))
        unit, beside = ("bytes", "as lines") if "bytes" in name else ("s", "as lines")
        if name == "rolling up":
            beside = "reading the lines once"
        rows.append(Row(f"{args.messages:,} messages: {name}", own, unit, beside, other, own / other))
    show(rows, f"medians of {args.repeats}")


if __name__ == "__main__":
    main()
