"""Takes out of an image's packages what no node reads: tests, headers, what debuggers want. `python trim.py VENV`."""

from __future__ import annotations

import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("tests", "torch/test", "torch/include", "torch/share")
ENDINGS = (".a", ".h", ".hpp", ".cuh", ".pxd", ".pyx", ".pyi")
"""Files that only a compiler reads, or a type checker."""
KEPT = ("torch_shm_manager",)
"""Of PyTorch's programs, the one that its data loaders start; the others are its tests."""
_HEAD = struct.Struct("<4sBB10x16xQQ6xHHH")  # magic, 64 bits, little-endian; program headers, sections; their sizes
_SEGMENT = struct.Struct("<8xQ16xQ16x")  # where it begins in the file, and how many bytes it has there


def spare(packages: Path) -> Iterator[Path]:
    """The files and folders that can go."""
    for path in sorted(packages.rglob("*")):
        inside = path.relative_to(packages).as_posix()
        if path.is_dir():
            if path.name in FOLDERS or inside in FOLDERS:
                yield path
        elif path.suffix in ENDINGS or (path.match("torch/bin/*") and path.name not in KEPT):
            yield path


def strip(library: Path) -> None:
    """Cut off what lies behind the last segment of an ELF file: names for debuggers, which no loader reads."""
    with library.open("r+b") as file:
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size or head[:6] != b"\x7fELF\x02\x01":
            return
        *_, segments, _, size, count, _ = _HEAD.unpack(head)
        file.seek(segments)
        found = [_SEGMENT.unpack_from(file.read(size)) for _ in range(count)]
        end = max([segments + size * count, *(begin + nbytes for begin, nbytes in found)])
        if end < file.seek(0, 2):
            file.truncate(end)
            file.seek(40)
            file.write(bytes(8))  # the place of the sections
            file.seek(60)
            file.write(bytes(4))  # how many there are, and which has their names


def main(environment: Path) -> None:
    """Trim the packages of a virtual environment."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    for path in spare(packages):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    for library in packages.rglob("*.so*"):
        strip(library)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
