"""Fetching: what arrives whole is put in place, everything else leaves nothing behind."""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from netdfl.core.errors import DatasetError
from netdfl.training.data import datasets, fetch, sources
from netdfl.training.data.fetch import RECIPES, FetchRecipe, get
from netdfl.training.data.sources import SourceUnavailable

CONTENT = b"ten bytes!"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def quiet(what: str, done: int, total: int | None) -> None: ...


def closed(folder: Path, progress) -> None:
    (folder / "half").write_bytes(b"half of it")
    raise SourceUnavailable("no route")


def give(content: bytes):
    def fill(folder: Path, progress) -> None:
        (folder / "a").write_bytes(content)

    return fill


def unasked(folder: Path, progress) -> None:
    raise AssertionError("not to be tried")


@pytest.fixture
def recipe(monkeypatch):
    def install(*, host, packages=unasked) -> None:
        made = FetchRecipe("toy/raw", {"a": SHA256}, {"own host": host}, {"registry": packages})
        monkeypatch.setattr(fetch, "RECIPES", {"toy": made})

    return install


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport pathlib, sys\n{text}\n")
    path.chmod(0o755)


def test_the_host_comes_first(recipe, tmp_path: Path) -> None:
    recipe(host=give(CONTENT))
    assert get("toy", tmp_path) == tmp_path / "toy" / "raw"
    assert (tmp_path / "toy/raw/a").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_packages_come_after_a_host_that_fails(recipe, tmp_path: Path) -> None:
    recipe(host=closed, packages=give(CONTENT))
    get("toy", tmp_path)
    assert (tmp_path / "toy/raw/a").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["toy"]


def test_the_source_may_be_chosen(recipe, tmp_path: Path) -> None:
    recipe(host=unasked, packages=give(CONTENT))
    get("toy", tmp_path, source="packages")
    recipe(host=closed, packages=unasked)
    with pytest.raises(DatasetError, match="own host: no route"):
        get("toy", tmp_path / "other", source="host")


def test_every_reason_is_given_in_one_line_and_nothing_is_left(recipe, tmp_path: Path) -> None:
    recipe(host=closed, packages=give(b"altered"))
    with pytest.raises(
        DatasetError, match=rf"own host: no route; registry: a has sha256 .*, expected {SHA256}"
    ) as caught:
        get("toy", tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_whole_files_are_kept_and_damaged_ones_fetched_again(recipe, tmp_path: Path) -> None:
    recipe(host=give(CONTENT))
    get("toy", tmp_path)
    recipe(host=unasked)
    get("toy", tmp_path)
    (tmp_path / "toy/raw/a").write_bytes(b"damaged")
    recipe(host=give(CONTENT))
    get("toy", tmp_path)
    assert (tmp_path / "toy/raw/a").read_bytes() == CONTENT


def test_a_root_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match="can't be written"):
        get("mnist", tmp_path / "file" / "root")


def test_digits_need_no_fetching(tmp_path: Path) -> None:
    assert get("digits", tmp_path) == datasets.digits_path()


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="'imagenet': expected one of digits, mnist"):
        get("imagenet", tmp_path)


def test_a_host_without_the_file_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable, match="No such file"):
        sources.download((tmp_path / "absent").as_uri(), tmp_path / "a", quiet)


def test_a_client_that_fails_or_is_missing_gives_its_reason(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceUnavailable, match="npm is not installed"):
        sources.npm_package("toy@1.0.0", SHA256, tmp_path, quiet)
    program(tmp_path, "npm", "sys.exit('first line\\nno such package')")
    with pytest.raises(SourceUnavailable, match="npm failed: no such package"):
        sources.npm_package("toy@1.0.0", SHA256, tmp_path, quiet)


def test_wheel_members_and_damaged_archives(tmp_path: Path) -> None:
    wheel = tmp_path / "toy.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("toy/a.bin", CONTENT)
    sources.unzip(wheel, {"a": "toy/a.bin"}, tmp_path)
    assert (tmp_path / "a").read_bytes() == CONTENT
    wheel.write_bytes(b"not a zip")
    with pytest.raises(SourceUnavailable, match=r"toy\.whl"):
        sources.unzip(wheel, {"a": "toy/a.bin"}, tmp_path)
    with pytest.raises(SourceUnavailable, match=r"toy\.whl"):
        sources.untar(wheel, {"a": ("toy/a.bin",)}, tmp_path)
    with pytest.raises(SourceUnavailable, match="damaged"):
        sources.gunzip(wheel, tmp_path / "b")


def test_recipes_are_complete() -> None:
    for name, recipe in RECIPES.items():
        assert name in datasets.DATASETS
        assert all(len(sha256) == 64 for sha256 in recipe.sha256.values())
        assert recipe.host
        assert recipe.packages
