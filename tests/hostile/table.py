"""The table of attacks on a fleet: who comes, what they may hear, and what a fleet looks like afterwards.

A fleet runs twice: under attack, and left alone in the simulated world, where the same scenario gives the same numbers.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trustme

import netdfl
from netdfl.record.judge import WELL
from netdfl.running.judged import FinishedRun
from netdfl.scenario.load import loads
from netdfl.testing.world_bench import nodes_of
from netdfl.transport.security.credentials import SUPERVISOR, name_of
from tests.hostile.attacked import Target, run_attacked
from tests.hostile.client import MEMBERS, NO_CONNECTION, Answers, Attacker, Tls, member, obey, ordered, stranger

TOP = Path(__file__).parents[2]
FIGURES = ("consensus_distance", "error")
HEAD = """
schema: netdfl/1
nodes: 4
wait: {deadline: none}
links: {default: {latency: 25ms}}
"""
FLEETS: Mapping[str, str] = {
    "gossip": """
name: attacked
rounds: 16
task: {kind: consensus, dim: 8}
algorithm: dpsgd
topology: full
""",
    "push-sum": """
name: attacked-push-sum
rounds: 16
task: {kind: consensus, dim: 8}
algorithm: sgp
topology: {kind: random_push, out_neighbors: 2}
""",
    "star": """
name: attacked-star
rounds: 12
task: {kind: quadratic, dim: 8}
algorithm: {name: fedavg, lr: 0.1, local_steps: 1}
topology: star
""",
}
AT: Mapping[str, str] = {
    "a share in a peer's name": "push-sum",
    "zeros in the server's name": "star",
    "the server is finished": "star",
}
"""The fleet to which an attack would do most; all others come to gossip."""


def scenario(fleet: str, world: str) -> str:
    """A fleet of the table in a world, which is written as `kind: processes, tls: true`."""
    return f"{HEAD}{FLEETS[fleet]}world: {{{world}, fidelity: {{relative: 100, slack: 100s}}}}\n"


@cache
def left_alone(fleet: str) -> Mapping[str, Any]:
    """The result of a fleet to which nobody comes."""
    text = f"{HEAD}{FLEETS[fleet]}world: {{kind: simulated}}\n"
    with TemporaryDirectory() as folder:
        return netdfl.run(loads(text), out=Path(folder) / "alone", page=False).result


# who comes, by what they show


def callees(target: Target) -> tuple[int, int, int]:
    """Whom they call: the first node, the last one, which is the server where there is one, and the supervisor."""
    return 0, len(target.addresses) - 1, SUPERVISOR


def strangers(target: Target) -> dict[str, list[Attacker]]:
    """Strangers at these ports."""
    at = [(callee, address_of(target, callee)) for callee in callees(target)]
    if target.certify(0) is not None:
        return {
            "plain text": [Attacker(where, stranger(k), None, k) for k, where in at],
            "no certificate": [Attacker(where, stranger(k), unproved(target, k), k) for k, where in at],
            "a certificate of their own": [Attacker(where, stranger(k), selfmade(target, k), k) for k, where in at],
        }
    overheard = {k: next(other for other in target.addresses.values() if other != where) for k, where in at}
    return {
        "nothing": [Attacker(where, (), None, k) for k, where in at],
        "no secret": [Attacker(where, stranger(k), None, k) for k, where in at],
        "a guess": [Attacker(where, member("a guess", k, where), None, k) for k, where in at],
        "another's proof": [  # of who has a port that another node has left
            Attacker(where, (*stranger(k), member(target.secret, k, overheard[k])[-1]), None, k) for k, where in at
        ],
        "version 1": [Attacker(where, member(target.secret, k, where, version=1), None, k) for k, where in at],
    }


def expected(shown: str, *, tls: bool) -> str:
    """The one thing that strangers hear, whatever they try."""
    return NO_CONNECTION if tls else "version" if shown in ("nothing", "version 1") else "secret"


def shown_by(target: Target, node: int, callee: int) -> Attacker:
    """Who has all that `node` has: the secret, and its certificate where there is TLS."""
    address, mine = address_of(target, callee), target.certify(node)
    tls = None if mine is None else replace(unproved(target, callee), key=mine.key, certificate=mine.certificate)
    audience = "the supervisor" if callee == SUPERVISOR else address
    return Attacker(address, member(target.secret, callee, audience), tls, callee, node)


def address_of(target: Target, callee: int) -> str:
    """Where a node listens, or the supervisor."""
    return target.control.replace("[::]", "[::1]") if callee == SUPERVISOR else target.addresses[callee]


def unproved(target: Target, callee: int) -> Tls:
    """TLS without a certificate, by who knows which authority signs the fleet's."""
    ours = target.certify(0)
    assert ours is not None
    return Tls(name_of(ours.run, callee), ours.authority)


def selfmade(target: Target, callee: int) -> Tls:
    """TLS with a certificate in node 1's name, of an authority of the stranger's own."""
    shown = unproved(target, callee)
    name = shown.name.replace(shown.name.partition(".")[0], "node-1", 1)
    made = trustme.CA().issue_cert(name, f"epoch-0.{name}")
    key, certificate = made.private_key_pem.bytes().decode(), made.cert_chain_pems[0].bytes().decode()
    return replace(shown, key=key, certificate=certificate)


# how they come


@dataclass
class Visit:
    """A visit to a fleet, to be made once: the attacks, and what was `heard` by who shows what.

    They come from here, or from the network of node 0 (`beside`), where nobody gets to it from here. `through` is a
    command that makes them other users.
    """

    attacks: Sequence[str]
    beside: bool = False
    through: Sequence[str] = ()
    heard: dict[str, set[str]] = field(default_factory=dict)
    listed: set[bool] = field(default_factory=set)
    """Whether the kernel lists the ports to them."""
    num_calls: int = 0
    """The number of attacks at ports: of who comes to a socket in the file system, TLS tells nothing."""

    async def strangers(self, target: Target) -> None:
        """Let all strangers come."""
        through = [*(await in_its_network(target.run) if self.beside else ()), *self.through]
        await self.come(strangers(target), target, through)

    async def come(self, shown: Mapping[str, list[Attacker]], target: Target, through: Sequence[str] = ()) -> None:
        """Make all attacks from here, or in a process that is started `through` a command."""
        callers = [(what, caller) for what, each in shown.items() for caller in each]
        order = ordered(self.attacks, [caller for _, caller in callers], target.known)
        told = await asyncio.to_thread(_elsewhere, order, through) if through else await obey(order)
        for (what, caller), answers in zip(callers, told, strict=True):
            self.heard.setdefault(what, set()).update(answers["heard"].values())
            self.listed.add(answers["listed"])
            self.num_calls += 0 if caller.address.startswith("unix:") else len(self.attacks)


def _elsewhere(order: str, through: Sequence[str]) -> list[Answers]:
    environment = {"PYTHONPATH": str(TOP), "GRPC_VERBOSITY": "NONE", "PATH": os.environ["PATH"]}
    command = [*through, sys.executable, "-m", "tests.hostile.client"]
    done = subprocess.run(command, input=order, capture_output=True, text=True, timeout=300, env=environment, cwd="/")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def in_its_network(run: Path) -> Sequence[str]:
    """The command through which another runs in the network of node 0."""
    for _ in range(6000):
        pids = [each["pid"] for each in nodes_of(run) if each["node"] == 0] if (run / "fleet.json").exists() else []
        if pids and pids[0]:
            return "nsenter", f"--net=/proc/{pids[0]}/ns/net"
        await asyncio.sleep(0.01)
    raise TimeoutError("no process of node 0 is known")


# what becomes of it


@dataclass(frozen=True)
class Placed:
    """A world of the table: its options, and from where and as whom they come to it."""

    world: str
    tls: bool
    beside: bool = False
    through: Sequence[str] = ()

    def told(self, fleet: str) -> str:
        """The scenario of a fleet in it."""
        return scenario(fleet, f"{self.world}, tls: {str(self.tls).lower()}")

    def strangers(self, attacks: Sequence[str], fleet: str, out: Path) -> Visit:
        """Let strangers come to a fleet, and look at what they hear and what the run says."""
        visit = Visit(attacks, self.beside, self.through)
        finished, _ = run_attacked(self.told(fleet), out, visit.strangers)
        assert visit.heard == {shown: {expected(shown, tls=self.tls)} for shown in visit.heard}
        assert_refused(finished, fleet, {None}, visit.num_calls)
        return visit

    def member(self, out: Path) -> None:
        """Let a client of a star send another one what the run does not have."""
        visit = Visit(list(MEMBERS), self.beside, self.through)

        async def come(target: Target) -> None:
            through = [*(await in_its_network(target.run) if self.beside else ()), *self.through]
            await visit.come({"node 1": [shown_by(target, 1, 0)]}, target, through)

        finished, _ = run_attacked(self.told("star"), out, come)
        assert {fate for heard in visit.heard["node 1"] for fate in heard.split(", ")} == {"refused:foreign"}
        assert_refused(finished, "star", {1}, visit.num_calls)


NAMES = ("from ", "node 1", "another process", "a connection ended before TLS")
"""How callers are named. gRPC tells no address of a connection that TLS refuses between two looks of the guard."""


def assert_refused(finished: FinishedRun, fleet: str, senders: set[int | None], at_least: int) -> None:
    """The fleet came out as if nobody had been there, and says of all who came who they were, and how often."""
    result = finished.result
    assert result["verdict"] in WELL, result["reasons"]
    assert [result[figure] for figure in FIGURES] == [left_alone(fleet)[figure] for figure in FIGURES]
    assert {(each["src"], each["reason"]) for each in result["refused"]} == {(src, "foreign") for src in senders}
    assert sum(each["messages"] for each in result["refused"]) >= at_least
    said = [what for (what,) in finished.run.rows("SELECT details->>'what' FROM events WHERE kind = 'refused'")]
    assert all(any(name in what for name in NAMES) for what in said), said


def main(world: str, tls: str, out: str, fleet: str, *attacks: str) -> None:
    """Let strangers come, or a member where there are no attacks; as a command, which a cluster may start."""
    placed = Placed(world, tls == "true")
    if attacks:
        placed.strangers(attacks, fleet, Path(out))
    else:
        placed.member(Path(out))


if __name__ == "__main__":
    main(*sys.argv[1:])
