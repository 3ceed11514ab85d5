"""Coverage-guided fuzzing of the decoder: frames, bodies and compressed vectors (needs `pip install atheris`).

    python -m tests.soak.fuzz_wire --count 1000000

An input is tried as a whole frame, then as a body whose checksum is put right, so that the fuzzer gets
past it; what decodes is given to every compressor. Anything but a MessageError is a failure, as is a
payload larger than its limit or a vector of another shape.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["netdfl.transport.wire", "netdfl.compression", "netdfl.mixing.payloads"]):
    import numpy as np
    import torch
    import xxhash

    from netdfl.compression.catalog import COMPRESSORS
    from netdfl.core.errors import MessageError
    from netdfl.core.types import Kind, Message, Payload
    from netdfl.mixing.payloads import pack_encoded, unpack_encoded
    from netdfl.transport import wire

from tests.soak.tally import Count, append

LIMITS = wire.Limits(max_bytes=1 << 16)
DIM = 96
LIKE = torch.zeros(DIM)
MADE = {name: make() for name, make in COMPRESSORS.items()}
RUN = b"fuzzing!"


def one_input(data: bytes) -> None:
    """Try one input; raise on anything that a hostile peer must not achieve."""
    try:
        check(wire.decode(data, LIMITS)[1])
    except MessageError:
        pass
    content = data[: LIMITS.max_bytes]
    digest = xxhash.xxh3_64_intdigest(content)
    try:
        check(wire.FrameReader(LIMITS).hashed_body(memoryview(content + digest.to_bytes(8, "little")), digest))
    except MessageError:
        pass


def check(payload: Payload) -> None:
    """A payload that was accepted keeps to its limits, whatever a compressor makes of it."""
    assert sum(array.nbytes for array in payload.arrays.values()) <= LIMITS.max_bytes
    for compressor in MADE.values():
        try:
            decoded = unpack_encoded(payload, compressor, LIKE)
        except MessageError:
            continue
        assert decoded.shape == LIKE.shape


def seeds(corpus: Path) -> None:
    """Well-formed bodies of every compressor to begin from."""
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(DIM).astype(np.float32))
    for name, compressor in MADE.items():
        payload = pack_encoded(compressor.compress(x, np.random.default_rng(1)))
        message = Message(0, 1, Kind.DATA, 0, 0, 0, 0, payload)
        (corpus / f"frame-{name}").write_bytes(wire.encode(message, RUN, 0))
        (corpus / f"body-{name}").write_bytes(b"".join(bytes(part) for part in wire.FrameWriter.body(payload))[:-8])


def main() -> None:
    """Fuzz in a child, whose exit code tells; append the line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory)
        seeds(corpus)
        pid = os.fork()
        if pid == 0:
            options = [
                f"-runs={args.count}",
                f"-seed={args.seed}",
                "-max_len=4096",
                "-timeout=10",
                "-rss_limit_mb=4096",
            ]
            atheris.Setup([sys.argv[0], *options, "-verbosity=0", str(corpus)], one_input)
            atheris.Fuzz()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    append("fuzz the decoder", Count(args.count, [] if code == 0 else [f"the fuzzer ended with {code}"]), args.seed)
    sys.exit(code != 0)


if __name__ == "__main__":
    main()
