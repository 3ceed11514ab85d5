"""A 1 GB vector moves with less than 1.5 times its size of extra memory on each side."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.soak
def test_a_gigabyte_moves_within_its_memory():
    nbytes = 1_000_000_000
    path = os.pathsep.join([str(HERE.parents[1]), str(HERE)])
    ends = [
        subprocess.Popen(
            [sys.executable, str(HERE / "large_peer.py"), str(node), str(nbytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": path, "GRPC_VERBOSITY": "NONE"},
        )
        for node in (0, 1)
    ]
    addresses = [end.stdout.readline().strip() for end in ends]
    for end, other in zip(ends, reversed(addresses), strict=True):
        print(other, file=end.stdin, flush=True)
    print("go", file=ends[0].stdin, flush=True)
    risen = [int(end.communicate()[0]) for end in ends]
    print({"sender": risen[0] / nbytes, "receiver": risen[1] / nbytes})
    assert max(risen) < 1.5 * nbytes
