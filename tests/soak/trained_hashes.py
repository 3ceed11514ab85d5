"""Event logs of ten small runs that train: the proof that a move of code changes no digit of what is learned.

    python -m tests.soak.trained_hashes --write build/trained.json   # before
    python -m tests.soak.trained_hashes --check build/trained.json   # after; the exit code is 1 where one differs

An event log holds the contents of every message and every metric, so parameters too. How they are rounded depends on
the processor and the libraries: so the file is of one machine, and lies in no repository (`tests/simulated/golden.json`
holds what does not train). Between them the ten use every part of a message's way: compression, push-sum, a server,
acknowledgements, redrawn graphs, several exchanges a round, requests, and all that can become of a message.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from netdfl.running.determinism import run_logged
from netdfl.scenario.load import loads
from tests.simulated.golden import arithmetic

FLEET: Mapping[str, Any] = {
    "schema": "netdfl/1",
    "seed": 11,
    "nodes": 5,
    "rounds": 3,
    "world": {"kind": "simulated", "compute": {"kind": "uniform", "low": "40ms", "high": "60ms"}},
    "task": {
        "dataset": {"name": "digits", "partition": {"kind": "dirichlet", "alpha": 0.5}},
        "model": {"name": "mlp", "hidden": [16]},
    },
    "algorithm": {"name": "dfedavgm", "lr": 0.05, "local_epochs": 1},
    "topology": {"kind": "random_sym", "neighbors": 2},
    "wait": {"deadline": "400ms"},
    "links": {
        "default": {"loss": "5%", "latency": {"dist": "lognormal", "mean": "20ms", "jitter": "5ms"}, "rate": "10Mbit"}
    },
    "expect": {"deadlock": "any", "stall": "any", "died": "any"},
}
"""Dirichlet parts of digits over links that lose, delay and queue."""

RUNS: Mapping[str, Mapping[str, Any]] = {
    "dirichlet": {},
    "qsgd": {"compression": {"kind": "qsgd", "bits": 4}, "delivery": "acknowledged"},
    "top_k": {"compression": {"kind": "top_k", "fraction": 0.1}, "delivery": "acknowledged"},
    "sam": {"algorithm": {"name": "dfedsam", "lr": 0.05, "local_epochs": 1}, "topology": {"kind": "ring"}},
    "push_sum": {
        "algorithm": {"name": "osgp", "lr": 0.05, "local_epochs": 1},
        "topology": {"kind": "random_push", "out_neighbors": 2, "redraw_every": 1},
    },
    "server": {
        "algorithm": {"name": "scaffold", "lr": 0.05, "local_epochs": 1},
        "topology": {"kind": "star", "participation": 0.5},
    },
    "distilling": {
        "algorithm": {"name": "dynafed", "lr": 0.05, "local_epochs": 1},
        "topology": {"kind": "star"},
    },
    "dynamic": {"topology": {"kind": "random_sym", "neighbors": 2, "redraw_every": 1}, "delivery": "acknowledged"},
    "pairwise": {
        "algorithm": {"name": "ad_psgd", "lr": 0.05, "local_epochs": 1},
        "topology": {"kind": "ring"},
        "nodes": 4,
    },
    "crash": {
        "algorithm": {"name": "dfedsgpsm", "lr": 0.05, "local_epochs": 1},
        "topology": {"kind": "random_push", "out_neighbors": 2},
        "delivery": "acknowledged",
        "links": {"default": {"loss": "10%", "latency": "20ms", "duplicate": "5%", "corrupt": "5%", "reorder": "10%"}},
        "events": [{"at": "90ms", "crash": 2, "restart_after": "80ms", "state": "kept"}],
    },
}


def hashes() -> dict[str, str]:
    """The hash of each run's event log."""
    found = {}
    for name, own in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            scenario = loads(json.dumps({**FLEET, **own, "name": name}))
            found[name] = run_logged(scenario, Path(folder) / "run")
    return found


def main() -> None:
    """Write them, or compare them with what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", type=Path, metavar="FILE")
    how.add_argument("--check", type=Path, metavar="FILE")
    args = parser.parse_args()
    found = {"arithmetic": arithmetic(), **hashes()}
    if args.write is not None:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(json.dumps(found, indent=1) + "\n")
        return
    before = json.loads(args.check.read_text())
    if before["arithmetic"] != found["arithmetic"]:
        raise SystemExit(f"{args.check} is of a machine that rounds otherwise: write it anew here, before the change")
    differ = [name for name in RUNS if before.get(name) != found[name]]
    print("\n".join(f"{name}: {before.get(name)} before, {found[name]} now" for name in differ), file=sys.stderr)
    raise SystemExit(bool(differ))


if __name__ == "__main__":
    main()
