"""A node in a process of its own that takes everything: prints its address, ends with its input.

python peer.py NODE PEER_ADDRESS EPOCH
"""

from __future__ import annotations

import asyncio
import sys

from grpc_fleet import make

from netdfl.testing.transports import KeptSink


async def main(node: int, peer: str, epoch: int) -> None:
    transport = make(node, epoch=epoch)
    transport.attach(KeptSink())
    transport.set_peer(0, peer)
    print(await transport.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await transport.aclose()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
