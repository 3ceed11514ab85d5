"""Delay, rate, loss and a partition of the namespaces world, measured by a UDP probe against the scenario.

python -m tests.soak.packet_fidelity --count 18

Each trial is one cell: delay and rate (within 5 %) at 10 and 50 Mbit/s, loss (within 3 standard errors) of
1, 5 and 10 %, and a partition (begins and ends within 50 ms of its time).
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

from tests.namespaces.udp_probe import Probe, network
from tests.soak.tally import main

S = 10**9
NBYTES = 1500


def trial(rng: Random, number: int) -> str | None:
    """One cell of the table, in turn."""
    cells = [lambda: shaped(10), lambda: shaped(50), *(lambda p=p: lossy(p) for p in (0.01, 0.05, 0.1)), partitioned]
    return cells[number % len(cells)]()


def shaped(mbit: int) -> str | None:
    """Delay of single packets, and rate of a queue that is never empty, over 40 ms."""
    links = {"default": {"latency": "40ms", "rate": f"{mbit}Mbit"}}
    expected_ns = 40 * 10**6 + NBYTES * 8 * 1000 / mbit
    with tempfile.TemporaryDirectory() as directory, network(Path(directory), links) as made:
        single = Probe(made, 0, 1)
        for _ in range(100):
            single.send(NBYTES)
            single.take(0.01)
        single.take(0.1)
        single.close()
        queued = Probe(made, 1, 0)
        for _ in range(round(mbit * 1e6 / 8 / NBYTES)):
            queued.send(NBYTES)
            while len(queued.sent) - len(queued.came) > 1000:
                time.sleep(0.001)
                queued.take()
        queued.take(0.5)
        queued.close()
    delay_ns = median(arrived - sent for sent, arrived in single.came.values())
    arrivals = sorted(arrived for _, arrived in queued.came.values())
    rate = (len(arrivals) - 1) * NBYTES * 8 * 1000 / (arrivals[-1] - arrivals[0])
    print(f"  {mbit} Mbit/s, 40 ms: delay {delay_ns / 1e6:.3f} of {expected_ns / 1e6:.3f} ms, rate {rate:.3f} Mbit/s")
    if len(single.came) != 100 or len(queued.came) != len(queued.sent):
        return f"{mbit} Mbit/s: {len(single.came)} of 100 and {len(queued.came)} of {len(queued.sent)} packets came"
    if abs(delay_ns / expected_ns - 1) > 0.05 or abs(rate / mbit - 1) > 0.05:
        return f"{mbit} Mbit/s: delay {delay_ns / expected_ns - 1:+.1%}, rate {rate / mbit - 1:+.1%}"
    return None


def lossy(share: float) -> str | None:
    """Packets that the engine lost, and those that the probe misses."""
    count = 20_000
    with tempfile.TemporaryDirectory() as directory, network(Path(directory), {"default": {"loss": share}}) as made:
        probe = Probe(made, 0, 1)
        for burst in range(count // 50):
            for _ in range(50):
                probe.send()
            probe.take(0.001 if burst % 4 == 0 else 0)
        probe.take(0.3)
        probe.close()
        counted = made.end()["packets"]["dropped"].get("loss", 0)
    missed, error = count - len(probe.came), (count * share * (1 - share)) ** 0.5
    shares = [f"{number / count:.3%}" for number in (counted, missed, 3 * error)]
    print(f"  loss {share:.0%}: engine {shares[0]}, probe {shares[1]}, 3 s.e. {shares[2]}")
    if counted != missed or abs(missed - share * count) > 3 * error:
        return f"loss {share:.0%}: engine {counted}, probe {missed}, expected {share * count:.0f} +- {3 * error:.0f}"
    return None


def partitioned() -> str | None:
    """When the first packet is missed, and when the first one comes again."""
    events = [{"at": "500ms", "for": "700ms", "partition": [[0], [1]]}]
    with tempfile.TemporaryDirectory() as directory, network(Path(directory), {}, events) as made:
        probe, began = Probe(made, 0, 1), time.monotonic_ns()
        while time.monotonic_ns() < began + 17 * S // 10:
            probe.send()
            probe.take(0.002)
        probe.take(0.1)
        probe.close()
    missed = [at - began for number, at in enumerate(probe.sent) if number not in probe.came]
    begins, ends = missed[0] - S // 2, missed[-1] - 12 * S // 10
    print(f"  partition: begins {begins / 1e6:+.1f} ms, ends {ends / 1e6:+.1f} ms")
    if max(abs(begins), abs(ends)) > 50_000_000 or len(probe.sent) - len(missed) != len(probe.came):
        return f"partition begins {begins / 1e6:+.1f} ms and ends {ends / 1e6:+.1f} ms off"
    return None


if __name__ == "__main__":
    main("packets: delay, rate, loss, partition", trial, 18)
