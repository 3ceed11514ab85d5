"""Every attack at once, for ten minutes, on a fleet that trains: it comes out as if nobody had been there.

python -m tests.soak.hostile [--seconds 600] [--tls]

Six nodes on a ring learn to read digits, a round in a fifth of a second or more. Strangers (another user, where this
is root) try all that the table of attacks has, at two nodes and the supervisor, and flood these with connections,
streams, resets, large requests and halves of messages. A member sends over an edge that the ring lacks, of no round, of
kinds that nobody uses. Afterwards the figures must be those of the simulated world to the last digit, the refused must
have their names, and no process may have grown by more than strangers and one member may cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import networkx  # noqa: F401  the supervisor loads it when it first looks who waits for whom, and grows by 15 MB

import netdfl
from netdfl.core.types import Json
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads
from netdfl.testing.world_bench import nodes_of
from tests.hostile.attacked import Target, run_attacked
from tests.hostile.client import MEMBERS, NO_CONNECTION, STRANGERS, ordered
from tests.hostile.flood import FLOODS, UNHEARD
from tests.hostile.table import expected, shown_by, strangers
from tests.soak.tally import ROOT, Count, append

SCENARIO = """
schema: netdfl/1
name: attacked-while-it-trains
nodes: 6
rounds: {rounds}
world: {{kind: processes, tls: {tls}, fidelity: {{relative: 100, slack: 100s}}}}
task: {{dataset: digits, model: mlp, batch_size: 32}}
algorithm: {{name: lian_dpsgd, lr: 0.05}}
topology: ring
wait: {{deadline: none}}
links: {{default: {{latency: 200ms}}}}
evaluation: {{every: {rounds}, local: none}}
"""
ROUNDS_A_SECOND = 5
FIGURES = ("test_accuracy", "test_loss", "consensus_distance")
MOST_MB = 20.0
"""What strangers (10 MB) and one member (10 MB, its models are small) may cost a process of a node.

The supervisor, to which strangers alone come, shares its process with this soak. `tests.soak.floods` measures each
flood of a process that does nothing else.
"""
UNANSWERED = {NO_CONNECTION, "CANCELLED", "Stream removed (Deadline Exceeded)", "DEADLINE_EXCEEDED", UNHEARD}
"""What gRPC says to strangers of whom there are too many."""
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
FEWEST_ROUNDS = 10


class Attack:
    """Whoever comes, and what is seen of the fleet meanwhile."""

    def __init__(self, *, tls: bool) -> None:
        self.tls = tls
        self.heard: dict[str, Counter[str]] = {}
        self.before: dict[int, float] = {}
        self.peak: dict[int, float] = {}
        self.after: dict[int, float] = {}

    async def come(self, target: Target) -> None:
        """Come once the fleet trains, and stay until it has."""
        await asyncio.to_thread(wait_for_rounds, target.run)
        self.before = memory(target.run)
        self.peak = dict(self.before)
        parties = {"strangers": [each for all in strangers(target).values() for each in all]}
        parties["member"] = [shown_by(target, 1, 3)]  # 1 and 3 are no neighbors
        attackers = [
            await self._start(ordered((), callers, target.known), AS_NOBODY if name == "strangers" else ())
            for name, callers in parties.items()
        ]
        over = asyncio.ensure_future(target.over.wait())
        while not over.done():
            for pid, nbytes in memory(target.run).items():
                self.peak[pid] = max(self.peak.get(pid, 0), nbytes)
            await asyncio.wait([over], timeout=1)
        for told in [await attacker.communicate(b"over\n") for attacker in attackers]:
            for name, heard in json.loads(told[0]).items():
                self.heard.setdefault(name, Counter()).update(heard)
        self.after = memory(target.run)

    async def _start(self, order: str, through: tuple[str, ...]) -> asyncio.subprocess.Process:
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            through = ()
        environment = {"PYTHONPATH": str(ROOT), "GRPC_VERBOSITY": "NONE", "PATH": os.environ["PATH"]}
        command = [*through, sys.executable, "-m", "tests.hostile.flood"]
        pipe = asyncio.subprocess.PIPE
        started = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment, cwd="/")
        assert started.stdin is not None
        started.stdin.write(order.encode() + b"\n")
        return started


def wait_for_rounds(run: Path) -> None:
    """Return once every node has begun some rounds."""
    while min([each["round"] or 0 for each in nodes_of(run)] or [0]) < FEWEST_ROUNDS:
        time.sleep(0.1)


def memory(run: Path) -> dict[int, float]:
    """The proportional set size of each process of nodes, and of the supervisor, in MB."""
    found: dict[int, float] = {}
    for pid in {each["pid"] for each in nodes_of(run)} | {os.getpid()}:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:  # it has ended
            continue
        found[pid] = next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return found


def rise(before: Mapping[int, float], then: Mapping[int, float]) -> tuple[float, float]:
    """By how much a process of a node has grown at most, and by how much the supervisor."""
    by = {pid: then.get(pid, 0) - mb for pid, mb in before.items()}
    return max(mb for pid, mb in by.items() if pid != os.getpid()), by[os.getpid()]


def wrong(result: Json, alone: Json, attack: Attack) -> list[str]:
    """What is not as it must be."""
    said = []
    if result["verdict"] not in WELL:
        said.append(f"verdict {result['verdict']}: {result['reasons']}")
    said += [f"{each}: {result[each]}, left alone {alone[each]}" for each in FIGURES if result[each] != alone[each]]
    if {(each["src"], each["reason"]) for each in result["refused"]} != {(None, "foreign"), (1, "foreign")}:
        said.append(f"refused: {result['refused']}")
    may = {expected(shown, tls=attack.tls) for shown in ("nothing", "no secret")} | UNANSWERED
    for name in (*STRANGERS, *FLOODS, *MEMBERS):
        heard = {word for words in attack.heard.get(name, {"nothing": 0}) for word in words.split(", ")}
        if unexpected := heard - ({"refused:foreign"} if name in MEMBERS else may):
            said.append(f"{name}: heard {sorted(unexpected)}")
    if max(grown := rise(attack.before, attack.peak)) > MOST_MB:
        said.append(f"a process of a node grew by {grown[0]:.1f} MB, the supervisor by {grown[1]:.1f} MB")
    return said


def main() -> None:
    """Attack one fleet, and write down what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    told = SCENARIO.format(rounds=max(2 * FEWEST_ROUNDS, args.seconds * ROUNDS_A_SECOND), tls=str(args.tls).lower())
    attack, began_s = Attack(tls=args.tls), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        result = run_attacked(told, Path(folder) / "run", attack.come)[0].result
        took_s = time.monotonic() - began_s
        alone = netdfl.run(loads(told, on="simulated"), out=Path(folder) / "alone", page=False).result
    calls = sum(heard.total() for heard in attack.heard.values())
    grown, left = (rise(attack.before, then) for then in (attack.peak, attack.after))
    failures = wrong(result, alone, attack)
    name = (
        f"every attack at once on a fleet that trains, {'TLS' if args.tls else 'plain text'}, {took_s:.0f} s: "
        f"{calls} attacks, {sum(each['messages'] for each in result['refused'])} refusals; grew by, at the "
        f"peak and at the end, a process of a node up to {grown[0]:.1f} and {left[0]:.1f} MB, the supervisor "
        f"{grown[1]:.1f} and {left[1]:.1f} MB; accuracy "
        f"{result['test_accuracy']['average_model']['last']}"
    )
    for what, heard in attack.heard.items():
        print(f"{what}: {dict(heard)}")
    print("\n".join([name, *failures]))
    append(name, Count(calls, failures), 1)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
