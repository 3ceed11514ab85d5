"""`netdfl credentials`: a file for each node of a fleet that nobody looks after, by which the others know it.

A file lets its node certify lives of its own, each with a new key that never leaves the node, and of nobody else. The
authority that made them is thrown away: nobody joins the fleet later.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.core.files import PRIVATE, read_plain
from netdfl.core.types import NodeId
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from netdfl.transport.authority import Authority

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNERS, _OTHERS = 0o600, 0o077
_MOST_BYTES = 1 << 16


def write_credentials(scenario: Scenario, folder: Path) -> list[Path]:
    """Write the file of each node of `scenario` into the new `folder`, which only its owner can read.

    Raises InputError.
    """
    from netdfl.transport.authority import Authority

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out {folder} is not an empty directory; name a new one, or empty it first")
    authority = Authority.make(secrets.token_hex(8))
    try:
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        folder.chmod(PRIVATE)
        return [_write(folder / f"{node}.pem", authority.of_node(node)) for node in range(scenario.num_nodes)]
    except OSError as error:
        raise InputError(f"{folder} can't be written: {error.strerror}; name another with --out DIR") from error


def _write(file: Path, authority: Authority) -> Path:
    with os.fdopen(os.open(file, _NEW, _OWNERS), "w", encoding="ascii") as opened:
        opened.write(authority.to_pem())
    return file


def read_credentials(file: Path, node: NodeId) -> Authority:
    """The authority of `node` from its file, which nobody else may be able to read. Raises InputError."""
    from netdfl.transport.authority import Authority

    try:
        text = read_plain(file, _MOST_BYTES)
        others = file.stat().st_mode & _OTHERS
    except OSError as error:
        raise InputError(f"--credentials {file} can't be read: {error.strerror}") from error
    if others:
        raise InputError(f"--credentials {file} can be read by others: chmod 600 {file}")
    try:
        return Authority.from_pem(text, node)
    except InputError as error:
        raise InputError(f"--credentials {file}: {error}") from error
