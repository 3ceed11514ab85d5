"""Copies of files from nodes that share no disk with the supervisor, written to the run directory in parts."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from netdfl.core.control import FilePart
from netdfl.core.errors import RunError
from netdfl.core.files import PRIVATE, is_of_node, writing
from netdfl.core.types import NodeId
from netdfl.record.directory import CHECKPOINTS

FOLDERS = ("store", "logs", "snapshots", "models", CHECKPOINTS)
MOST_BYTES = 1 << 40


def mirror(directory: Path, node: NodeId, part: FilePart) -> None:
    """Write a part of a file of `node` into the run `directory`, skipping bytes that are there already.

    If the node has restarted, it begins the file anew.

    Raises:
        ValueError: the part belongs to no file of that node, or leaves a gap; nothing is written.
        RunError: the disk refuses.
    """
    target = directory / _checked(node, part.path)
    file = target if part.grows else target.with_name(f"{target.name}.part")
    with writing(target, RunError):
        file.parent.mkdir(PRIVATE, exist_ok=True)
        begins_anew = part.offset == 0 and not part.grows
        size = file.stat().st_size if file.exists() and not begins_anew else 0
        if part.offset > size or part.offset + len(part.data) > MOST_BYTES:
            raise ValueError(f"{part.path}: expected bytes from {size} on, got them from {part.offset} on")
        with file.open("wb" if begins_anew else "ab") as written:
            written.write(part.data[size - part.offset :])
        if part.last and not part.grows:
            file.replace(target)


def _checked(node: NodeId, path: str) -> Path:
    """Return the path if `node` may write this file: a plain one with the node's number in its name."""
    parts = PurePosixPath(path).parts
    mine = len(parts) == 2 and is_of_node(parts[1], node)
    if not mine or parts[0] not in FOLDERS or "/" in parts[1] or "\\" in parts[1]:
        raise ValueError(f"{path!r} is no file of node {node}")
    return Path(*parts)
