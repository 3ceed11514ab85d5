"""What is thrown away and what is not; what somebody says of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from netdfl.collection.finding import runs_below
from netdfl.collection.labels import Labels, read_labels, write_labels
from netdfl.collection.rows import read_row
from netdfl.collection.trash import throw_away
from netdfl.core.errors import InputError
from netdfl.record.directory import hold
from tests.collection.conftest import Plant


def test_a_run_is_moved_into_the_trash_and_latest_names_the_one_before(plant: Plant, folder: Path) -> None:
    old, new = plant("small/20260101T000000Z-1"), plant("small/20260102T000000Z-1")
    (folder / "small/latest").symlink_to(new.name)
    assert throw_away(folder / "small/latest", folder) == folder / ".trash/small/20260102T000000Z-1"
    assert (folder / ".trash/small/20260102T000000Z-1/result.json").is_file()
    assert runs_below(folder) == [old]
    assert (folder / "small/latest").resolve() == old
    throw_away(old, folder)
    assert not (folder / "small/latest").is_symlink()
    assert runs_below(folder) == []


def test_the_trash_keeps_several_runs_of_one_name(plant: Plant, folder: Path) -> None:
    assert throw_away(plant("a"), folder).name == "a"
    assert throw_away(plant("a"), folder).name == "a-2"
    assert throw_away(plant("a"), folder).name == "a-3"


def test_the_link_by_which_a_sweep_names_a_run_goes_with_it(plant: Plant, folder: Path) -> None:
    gone, left = plant("rates/cells/0f3a"), plant("rates/cells/11bc")
    links = folder / "rates/runs"
    links.mkdir()
    for path, name in ((gone, "loss-5%_seed-1"), (left, "loss-5%_seed-2")):
        (links / name).symlink_to(f"../cells/{path.name}")
    throw_away(gone, folder)
    assert [each.name for each in links.iterdir()] == ["loss-5%_seed-2"]


def test_a_run_that_goes_on_is_refused(plant: Plant, folder: Path) -> None:
    path = plant("a")
    with hold(path), pytest.raises(InputError, match="still going on"):
        throw_away(path, folder)
    assert runs_below(folder) == [path]


def test_nothing_outside_of_the_folder_is_thrown_away(plant: Plant, folder: Path, tmp_path: Path) -> None:
    inside = plant("a")
    elsewhere = tmp_path / "elsewhere"
    inside.rename(elsewhere)
    (folder / "link").symlink_to(elsewhere)
    for path in (folder / "link", elsewhere, folder / "../elsewhere"):
        with pytest.raises(InputError, match=r"lies outside of .*runs; name the folder that holds it with --in"):
            throw_away(path, folder)
    with pytest.raises(InputError, match="lies outside"):
        throw_away(elsewhere, elsewhere)
    assert (elsewhere / "result.json").is_file()


@pytest.mark.parametrize("link", [".trash", ".trash/small"])
def test_a_trash_that_leads_out_of_the_folder_is_not_used(
    plant: Plant, folder: Path, tmp_path: Path, link: str
) -> None:
    path = plant("small/a")
    (tmp_path / "outside").mkdir()
    (folder / link).parent.mkdir(exist_ok=True)
    (folder / link).symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match=f"{re.escape(link)} is a link; remove it"):
        throw_away(path, folder)
    assert path.is_dir()
    assert not list((tmp_path / "outside").iterdir())


def test_what_is_no_run_is_not_thrown_away(folder: Path) -> None:
    (folder / "data").mkdir()
    with pytest.raises(InputError, match=r"is not a run: it has no scenario\.yaml"):
        throw_away(folder / "data", folder)
    with pytest.raises(InputError, match="is not a run: there is no such folder"):
        throw_away(folder / "none", folder)


def test_labels_lie_beside_the_run_and_go_where_it_goes(plant: Plant, folder: Path) -> None:
    path = plant("a")
    assert read_labels(path) == Labels()
    write_labels(path, read_labels(path).changed(add=["slow uplinks", " base "], note="  why  "))
    write_labels(path, read_labels(path).changed(add=["last"], remove=["base"], archived=True))
    (folder / "first").mkdir()
    moved = path.rename(folder / "first/b")
    assert read_labels(moved) == Labels(("last", "slow uplinks"), "why", True)
    row = read_row(moved, folder)
    assert (row.tags, row.value("note")) == (["last", "slow uplinks", "first"], "why"), "those of folders come last"


@pytest.mark.parametrize("tag", ["", "  ", "a,b", "two\nlines", "x" * 61])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(InputError, match="is no tag; write up to 60 letters on one line without a comma"):
        Labels().changed(add=[tag])


def test_there_is_a_bound_for_tags_and_notes() -> None:
    assert len(Labels().changed(add=["x" * 60, *map(str, range(19))]).tags) == 20
    with pytest.raises(InputError, match="at most 20 tags, and this would make 21"):
        Labels().changed(add=map(str, range(21)))
    assert Labels().changed(note="x" * 4000).note
    with pytest.raises(InputError, match="at most 4000 letters, and this one has 4001"):
        Labels().changed(note="x" * 4001)


@pytest.mark.parametrize("text", ["{", '{"tags": "a"}', '{"note": 3}', json.dumps({"tags": ["x"] * 21})])
def test_damaged_labels_are_said_and_the_run_is_listed(plant: Plant, folder: Path, text: str) -> None:
    path = plant("a")
    (path / "labels.json").write_text(text)
    with pytest.raises(InputError, match=r"labels\.json is damaged"):
        read_labels(path)
    row = read_row(path, folder)
    assert "labels.json is damaged" in row.wrong
    assert row.verdict == "done"


def test_labels_through_a_link_are_neither_read_nor_written(plant: Plant, tmp_path: Path) -> None:
    path, secret = plant("a"), tmp_path / "secret"
    secret.write_text('{"note": "secret"}')
    (path / "labels.json").symlink_to(secret)
    with pytest.raises(InputError):
        read_labels(path)
    write_labels(path, Labels(note="mine"))
    assert "secret" in secret.read_text()
    assert read_labels(path).note == "mine"
