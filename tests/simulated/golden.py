"""Golden event logs: what the simulated fleet did in every training-free scenario, held so that a move changes nothing.

python -m tests.simulated.golden

writes `golden.json` anew. Its scenarios are those of scenarios/smoke and scenarios/faults that train nothing, and for
every method of the catalog the built-in quadratic over links that lose, delay and queue, with a crash and a return.

Of each log two digests stand there. `events` is of what the network did: every message's edge, round, step, size, times
and fate. It is the same on every machine. `log` is the event log's own hash, which covers numbers too: contents of
messages and metrics. These depend on how a processor rounds (fused products, the order of sums), so it is compared only
where `arithmetic` gives the digest that it gave where the file was written.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netdfl
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.running.determinism import LOG, run_logged
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("golden.json")
sys.path.insert(0, str(ROOT / "tests" / "algorithms"))
from method_scenarios import scenario as method_scenario  # noqa: E402

FILES = {
    f"{file.parent.name}/{file.stem}": file
    for folder in ("smoke", "faults")
    for file in sorted((ROOT / "scenarios" / folder).glob("*.yaml"))
}
PICTURES = frozenset({"dynafed"})
"""Methods that need pictures, so that a quadratic is no problem for them."""
VARIANTS = {
    "faults/slow_uplinks in turn": (
        "faults/slow_uplinks",
        ("links.home={uplink: {rate: 5Mbit, queue: 1MB, sharing: fifo}, downlink: {rate: 50Mbit, sharing: fifo}}",),
    )
}
"""Scenarios of these files with other settings: what these files came to before a default changed."""
METHODS = {f"methods/{name}": name for name in ALGORITHMS if name not in PICTURES}


def names() -> list[str]:
    """All scenarios of the file that train nothing."""
    files = [name for name, file in FILES.items() if netdfl.load(file).task.kind != "train"]
    return [*files, *VARIANTS, *METHODS]


def scenario(name: str) -> Scenario:
    """The scenario called `name`, in the simulated world."""
    if name in METHODS:
        return loads(json.dumps(_faulty(METHODS[name])))
    file, sets = VARIANTS.get(name, (name, ()))
    return netdfl.load(FILES[file], sets, on="simulated")


def _faulty(method: str) -> dict[str, Any]:
    return method_scenario(
        method,
        seed=5,
        rounds=6,
        world={"kind": "simulated", "compute": "50ms"},
        task={"kind": "quadratic", "dim": 12, "heterogeneity": 1.0},
        wait={"deadline": "2s"},
        links={
            "default": {
                "loss": "5%",
                "latency": {"dist": "lognormal", "mean": "20ms", "jitter": "5ms"},
                "rate": "1Mbit",
            }
        },
        events=[{"at": "200ms", "crash": 2, "restart_after": "300ms"}],
    )


def digests(name: str) -> dict[str, str]:
    """Run the scenario; the digests of its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = run_logged(scenario(name), Path(folder) / "run")
        events = hashlib.sha256()
        for line in _messages(Path(folder) / "run" / LOG):
            events.update(line.encode())
    return {"events": events.hexdigest()[:32], "log": log}


def _messages(log: Path) -> Iterator[str]:
    """The log's lines of messages, without the digest of what they carried."""
    with log.open() as lines:
        for line in lines:
            if line.split(" ", 2)[1] == "message":
                yield line.rsplit(" ", 1)[0] + "\n"


def arithmetic() -> str:
    """A digest of how this machine rounds where netdfl sums."""
    import torch

    x = torch.sin(torch.arange(1, 4097, dtype=torch.float64) * 0.7)
    products = torch.stack([x, x.sqrt().nan_to_num(), x.exp(), x.log1p().nan_to_num()])
    found = [products @ x, products.sum(1), torch.add(x, x.flip(0), alpha=0.3), x.float() * 0.3 + x.float().flip(0)]
    return hashlib.sha256(b"".join(one.numpy().tobytes() for one in found)).hexdigest()[:32]


def main() -> None:
    """Write the file anew, a line a scenario."""
    lines = [f'"arithmetic": "{arithmetic()}"'] + [f'"{name}": {json.dumps(digests(name))}' for name in names()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
