"""One end of a large transfer in a process of its own; prints how far its memory rose above its vector.

python large_peer.py NODE NBYTES; addresses go through standard output and input.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from grpc_fleet import OPTIONS, make

from netdfl.core.types import Array, Payload, unicasts
from netdfl.testing.transports import KeptLedger, KeptSink, data_message


def memory_bytes(field: str) -> int:
    """A figure of /proc/self/status: VmRSS, or its peak VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"/proc/self/status has no {field}")


async def main(node: int, nbytes: int) -> None:
    ledger, sink = KeptLedger(), KeptSink()
    transport = make(node, ledger, options=replace(OPTIONS, max_message=nbytes + 4096))
    transport.attach(sink)
    print(await transport.start(), flush=True)
    transport.set_peer(1 - node, (await asyncio.to_thread(sys.stdin.readline)).strip())
    vector = np.ones(nbytes // 4 if node == 0 else 0, np.float32)
    before = memory_bytes("VmRSS")
    if node == 0:
        await asyncio.to_thread(sys.stdin.readline)
        array = Array("float32", vector.shape, memoryview(vector).cast("B").toreadonly())
        await transport.send(unicasts([data_message((0, 1), 0, Payload({"x": array}))]))
        await ledger.until_settled(1)
        assert ledger.rows[0].fate.text == "delivered", ledger
    else:
        await sink.until(1)
        assert np.frombuffer(sink.messages[0].payload.arrays["x"].data, np.float32).sum(dtype=np.float64) == nbytes // 4
    print(max(memory_bytes("VmHWM"), memory_bytes("VmRSS")) - before, flush=True)
    await transport.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
