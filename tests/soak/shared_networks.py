"""Shared links of real nodes against the simulated ones, by traffic that is sent at the same times.

python -m tests.soak.shared_networks [--only NAME]

The networks are those of `tests/links/shared_traffic.py`, and of `tests/underlay/core_traffic.py` with core links. Each
node is a process and emulates its links above gRPC; this process divides core links, as a supervisor does. The
simulated world has the times at which messages were really sent. An arrival may differ by 5 % or 50 ms, the larger;
what is lost must be lost in both. Mean errors have a sign, negative for early, and messages that cross core links have
a column of their own. It takes about two minutes and a quiet machine: a network is played again where the host of a
virtual machine took more CPU time than MOST_STOLEN_S meanwhile, and is wrong where that was so each time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from typing import Any

from netdfl.core.control import CoreRate
from tests.links.shared_traffic import SCENARIOS, Network
from tests.soak.disturbed import DisturbedError, stolen_s
from tests.soak.tally import Count, append
from tests.underlay.core_traffic import CORE_TRAFFIC, CoreTraffic

S = 10**9
PAUSE_S = 0.001
LEAD_NS = S
MOST_STOLEN_S = 0.2
"""CPU time that the host may take while a network's messages are under way. With 0.14 s all arrivals of sixteen nodes
were within the bound, with 0.36 s and more one to three were not."""
TRIES = 10
"""How often a network is played until it is not measured, which counts as wrong: some three minutes for the longest."""
Arrivals = Mapping[int, int | None]


class Nodes:
    """The processes of all nodes, and the division of core links among them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.heard: asyncio.Queue[tuple[int, dict[str, Any]]] = asyncio.Queue()
        self.start_ns = 0
        self._asked: set[int] = set()

    async def __aenter__(self) -> Nodes:
        command = [sys.executable, "-m", "tests.soak.shared_node"]
        pipe = asyncio.subprocess.PIPE
        self.processes = [
            await asyncio.create_subprocess_exec(*command, str(node), stdin=pipe, stdout=pipe, stderr=None)
            for node in range(self.count)
        ]
        self._listening = [asyncio.create_task(self._listen(node)) for node in range(self.count)]
        return self

    async def __aexit__(self, *why: object) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.processes:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 10)
            if process.returncode is None:
                process.kill()

    def say(self, node: int, what: dict[str, Any]) -> None:
        stdin = self.processes[node].stdin
        assert stdin is not None
        stdin.write(json.dumps(what).encode() + b"\n")

    async def _listen(self, node: int) -> None:
        stdout = self.processes[node].stdout
        assert stdout is not None
        while line := await stdout.readline():
            told = json.loads(line)
            if "flows" in told:
                self._take(node, told)
            else:
                self.heard.put_nowait((node, told))

    def _take(self, node: int, told: dict[str, Any]) -> None:
        self.division.take(node, [CoreRate(*each) for each in told["flows"]], time.monotonic_ns() - self.start_ns)
        if not self._asked:
            asyncio.get_running_loop().call_later(PAUSE_S, self._divide)
        self._asked.add(node)

    def _divide(self) -> None:
        self.division.go_on(time.monotonic_ns() - self.start_ns)
        asked, self._asked = self._asked, set()
        news = self.division.news()
        for node in {*news, *asked}:
            rates = [astuple(each) for each in news.get(node, ())]
            self.say(node, {"rates": rates, "answers": node in asked})

    async def all(self, size: int, key: str) -> dict[int, Any]:
        """What each of the first nodes says of `key`."""
        found: dict[int, Any] = {}
        while len(found) < size:
            node, told = await asyncio.wait_for(self.heard.get(), 120)
            found[node] = told[key]
        return found

    async def play(self, name: str, traffic: Network | CoreTraffic) -> tuple[dict[int, float], Arrivals]:
        """When each message was sent, in s, and when it arrived, in ns; None for one that did not.

        Raises DisturbedError where the host took too much CPU time while messages were under way.
        """
        nodes = range(1 + max(node for _, *edge, _ in traffic.messages for node in edge))
        for node in nodes:
            self.say(node, {"network": name})
        addresses = await self.all(len(nodes), "address")
        for node in nodes:
            self.say(node, {"peers": addresses})
        await self.all(len(nodes), "met")
        if isinstance(traffic, CoreTraffic):
            self.division = traffic.division()
        before_s, self.start_ns = stolen_s(), time.monotonic_ns() + LEAD_NS
        if isinstance(traffic, CoreTraffic):
            for at_ns in {event.at_ns for event in traffic.events if event.core and event.at_ns}:
                asyncio.get_running_loop().call_later((LEAD_NS + at_ns) / S, self._divide)
        for node in nodes:
            self.say(node, {"start_ns": self.start_ns})
        rows = [row for each in (await self.all(len(nodes), "rows")).values() for row in each]
        meanwhile_s = stolen_s() - before_s
        for node in nodes:
            self.say(node, {"close": True})
        await self.all(len(nodes), "closed")
        if meanwhile_s > MOST_STOLEN_S:
            raise DisturbedError(f"the host took {meanwhile_s:.2f} s of CPU time")
        return {number: sent / S for number, sent, _ in rows}, {number: arrived for number, _, arrived in rows}


def as_sent(traffic: Network | CoreTraffic, times: Mapping[int, float]) -> Network | CoreTraffic:
    """The traffic with the times at which its messages were really sent."""
    return replace(traffic, messages=[(times[n], *rest) for n, (_, *rest) in enumerate(traffic.messages)])


def in_ms(errors_s: Sequence[float]) -> str:
    """The mean of errors, with its sign."""
    return f"{1000 * sum(errors_s) / len(errors_s):+.0f} ms" if errors_s else "-"


async def play_undisturbed(
    nodes: Nodes, name: str, traffic: Network | CoreTraffic
) -> tuple[dict[int, float], Arrivals]:
    """Play a network until nothing disturbs it. Raises DisturbedError where that was so TRIES times."""
    tries = 0
    while True:
        try:
            return await nodes.play(name, traffic)
        except DisturbedError as disturbed:
            print(f"{name}: not counted: {disturbed}", file=sys.stderr, flush=True)
            tries += 1
            if tries == TRIES:
                raise


async def play_all(only: str | None) -> Count:
    """Print a row for each network; count arrivals beyond the bound."""
    total, wrong = 0, []
    print("| network | messages | mean error | over core links | worst error | beyond the bound |")
    print("|---|---|---|---|---|---|")
    networks: dict[str, Network | CoreTraffic] = {**SCENARIOS, **CORE_TRAFFIC}
    async with Nodes(16) as nodes:
        for name, network in networks.items():
            if only not in (None, name):
                continue
            total += len(network.messages)
            try:
                times, found = await play_undisturbed(nodes, name, network)
            except DisturbedError:
                wrong.append(f"{name}: not measured, the machine was too busy")
                continue
            errors, core, beyond = [], [], 0
            expected = as_sent(network, times).engine()
            for number, at_ns in expected.items():
                came = found.get(number)
                if at_ns is None or came is None:
                    beyond += at_ns is not came
                    continue
                _, src, dst, _ = network.messages[number]
                is_core = isinstance(network, CoreTraffic) and network.site_of[src] != network.site_of[dst]
                (core if is_core else errors).append((came - at_ns) / S)
                beyond += abs(came - at_ns) / S > max(0.05, 0.05 * at_ns / S)
            wrong += [f"{name}: {beyond} of {len(expected)}"] if beyond else []
            worst = 1000 * max([*errors, *core], key=abs)
            means = f"{in_ms(errors)} | {in_ms(core)}"
            print(f"| {name} | {len(expected)} | {means} | {worst:+.0f} ms | {beyond} |", flush=True)
    return Count(total, wrong)


def main() -> int:
    """Append a line to the tally; return 1 where an arrival is beyond the bound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", help="the name of one network, of which the tally says nothing")
    only = parser.parse_args().only
    counted = asyncio.run(play_all(only))
    if only is None:
        append("arrivals over shared links of real nodes, within 5 % or 50 ms of the simulated ones", counted, 0)
    return bool(counted.failures)


if __name__ == "__main__":
    sys.exit(main())
