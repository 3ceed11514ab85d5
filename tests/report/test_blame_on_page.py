"""The blame of a run among the data of its page: read from `blame.json`, and left out where it is of another run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError
from netdfl.record.directory import RunDirectory
from netdfl.record.run import open_run
from netdfl.report.data import page_data

LANES: dict[str, Any] = {
    "end_s": 2.0,
    "until_s": 2.0,
    "bars": {"node": [1], "since": [0.5], "until": [2.0], "what": [2]},
    "messages": {"src": [0], "dst": [1], "sent": [0.5], "arrived": [None], "lost": [True]},
}
SHOWN: dict[str, Any] = {
    "row": 0,
    "words": ["they part at 0.5 s", "lost", "delivered"],
    "at_s": 0.5,
    "nodes": [0, 1],
    "num_nodes": 2,
    "lanes": [LANES, LANES],
}
BLAME: dict[str, Any] = {
    "schema": "netdfl/blame/1",
    "event_log_hash": "ab",
    "target": "end",
    "took": "2s",
    "head": ["without", "takes", "gain"],
    "rows": [{"cells": ["the losses on 0->1", "1s", "1s less, 50 %"], "order": [None, 1e9, 1e9]}],
    "left_out": 0,
    "sentences": ["none of these can be left out"],
    "shown": [SHOWN],
}
Change = Callable[[dict[str, Any]], object]


def page_of(folder: Path, blame: dict[str, Any] | None, log_hash: str = "") -> Any:
    """The data of the page of a run with this `blame.json`; with a result if it has a hash."""
    directory = RunDirectory.create(folder, "b", 0, out=folder / "run")
    directory.write("scenario.yaml", "name: b\n")
    if log_hash:
        directory.write_json("result.json", {"event_log_hash": log_hash})
    if blame is not None:
        directory.write_json("blame.json", blame)
    return page_data(open_run(directory.path), tolerant=True)


def test_the_page_has_what_was_kept(tmp_path: Path) -> None:
    data = page_of(tmp_path, BLAME)
    assert data["blame"] == BLAME
    assert data["troubles"] == []
    assert page_of(tmp_path / "finished", BLAME, log_hash="ab")["blame"] == BLAME


def test_a_run_without_a_blame_and_one_that_was_made_anew_since_have_none(tmp_path: Path) -> None:
    assert page_of(tmp_path / "without", None)["blame"] is None
    assert page_of(tmp_path / "anew", BLAME, log_hash="cd")["blame"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda blame: blame["rows"][0]["cells"].pop(), "each row must have 3 cells"),
        (lambda blame: blame["shown"][0].update(row=1), "row 1 is none of 1"),
        (lambda blame: blame["shown"][0]["lanes"][0]["bars"]["node"].append(0), "of one length"),
        (lambda blame: blame["shown"][0]["lanes"][0]["bars"].update(what=[5]), "what"),
        (lambda blame: blame["shown"][0].update(nodes=[-1]), "nodes"),
        (lambda blame: blame.update(schema="netdfl/blame/2"), "schema"),
    ],
)
def test_a_damaged_blame_is_told_with_its_place_and_left_out(change: Change, said: str, tmp_path: Path) -> None:
    blame = json.loads(json.dumps(BLAME))
    change(blame)
    data = page_of(tmp_path, blame)
    assert data["blame"] is None
    assert any(said in trouble and "blame.json is damaged" in trouble for trouble in data["troubles"])
    with pytest.raises(InputError, match=said):
        page_data(open_run(tmp_path / "run"))
