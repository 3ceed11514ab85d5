"""The command `netdfl credentials`: for each node without a supervisor, a file by which it proves its identity.

Each file also has the secret of the fleet. So has a separate file, for nodes that talk in plain text.

With its file a node can sign a certificate for each of its own starts, with a new key that never leaves the node, but
for no other node. The authority that made the files is thrown away: no node joins the fleet later.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError
from netdfl.core.files import OTHER_OUT, PRIVATE, read_plain, writing
from netdfl.core.types import NodeId
from netdfl.scenario.model.schema import Scenario

if TYPE_CHECKING:
    from netdfl.transport.security.authority import Authority

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNERS, _EVERYBODYS, _OTHERS = 0o600, 0o644, 0o077
MOUNTED = Path("/run/secrets")
"""The folder in which container engines mount secret files: only processes of that container can read them."""
FLEET_SECRET = "fleet.secret"
LEAST_LETTERS = 32
_MOST_BYTES = 1 << 16
_SECRET = "-----BEGIN NETDFL SECRET-----\n{}\n-----END NETDFL SECRET-----\n"
_SECRET_IN = re.compile(_SECRET.format("([0-9a-f]{64})"))


def write_credentials(
    scenario: Scenario, folder: Path, *, mounted: bool = False, tls: bool | None = None
) -> list[Path]:
    """Write a file for each node of `scenario`, and the file `fleet.secret`, into the new `folder`; return their paths.

    `tls`: true for the nodes' files only, false for `fleet.secret` only, which nodes need that talk in plain text; None
    for both. Only the files' owner can read them. With `mounted` others can too, because the files will be mounted into
    containers, which run as other users. Raises InputError.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--out {folder} is not an empty directory; name a new one, or empty it first")
    with writing(folder, more=OTHER_OUT):
        folder.mkdir(PRIVATE, parents=True, exist_ok=True)
        folder.chmod(PRIVATE)
        mode = _EVERYBODYS if mounted else _OWNERS
        secret = secrets.token_hex(32)
        made = {} if tls is False else bundles(scenario.num_nodes, secret)
        files = {f"{node}.pem": text for node, text in made.items()} | ({} if tls else {FLEET_SECRET: f"{secret}\n"})
        return [_write(folder / name, text, mode) for name, text in files.items()]


def bundles(num_nodes: int, secret: str) -> dict[NodeId, str]:
    """Return each node's file: a certificate authority for it, signed by a temporary one, and the fleet's `secret`."""
    from netdfl.transport.security.authority import Authority

    authority = Authority.make(secrets.token_hex(8))
    return {node: authority.of_node(node).to_pem() + _SECRET.format(secret) for node in range(num_nodes)}


def _write(file: Path, text: str, mode: int) -> Path:
    with os.fdopen(os.open(file, _NEW, _OWNERS), "w", encoding="ascii") as opened:
        opened.write(text)
        os.fchmod(opened.fileno(), mode)
    return file


def read_credentials(file: Path, node: NodeId) -> tuple[Authority, str]:
    """Return the certificate authority of `node` and the fleet's secret, from the node's credentials `file`.

    Raises InputError, also if other users may read the file.
    """
    from netdfl.transport.security.authority import Authority

    text = _read_private("--credentials", file)
    try:
        authority = Authority.from_pem(text, node)
    except InputError as error:
        raise InputError(f"--credentials {file}: {error}") from error
    if (found := _SECRET_IN.search(text)) is None:
        raise InputError(f"--credentials {file}: an earlier netdfl wrote it, without a secret; write new ones")
    return authority, found[1]


def read_secret(file: Path) -> str:
    """Return the fleet's secret from `file`. Raises InputError, also if other users may read the file."""
    text = _read_private("--secret", file).strip()
    if len(text) < LEAST_LETTERS:
        raise InputError(f"--secret {file} has {len(text)} letters: expected at least {LEAST_LETTERS}, drawn by chance")
    return text


def _read_private(option: str, file: Path) -> str:
    mounted = MOUNTED in file.parents
    try:
        text = read_plain(file.resolve() if mounted else file, _MOST_BYTES)  # Kubernetes mounts links
        others = 0 if mounted else file.stat().st_mode & _OTHERS
    except OSError as error:
        raise InputError(f"{option} {file} can't be read: {error.strerror}") from error
    if others:
        raise InputError(f"{option} {file} can be read by others: chmod 600 {file}")
    return text
