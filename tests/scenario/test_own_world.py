"""A world of one's own is named `module:ENTRY`, and says itself which options it has."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.scenario.load import load
from netdfl.scenario.loading.resolved import to_plain
from netdfl.scenario.model.world import RealOptions

SCENARIO = {"schema": "netdfl/1", "name": "t", "nodes": 4, "rounds": 2, "task": "consensus", "topology": "ring"}
MODULE = """
from types import SimpleNamespace
from pydantic import Field
from netdfl.scenario.model.world import RealOptions

class ThreadOptions(RealOptions):
    threads: int = Field(2, ge=1, description="How many threads share the nodes.")

THREADS = SimpleNamespace(make=lambda setting: None, options=ThreadOptions)
BARE = SimpleNamespace(make=lambda setting: None)
NO_WORLD = SimpleNamespace(options=ThreadOptions)
NO_OPTIONS = SimpleNamespace(make=lambda setting: None, options=int)
"""


def written(folder: Path, world: object) -> Path:
    """A scenario in a world of the module beside it."""
    (folder / "worlds.py").write_text(MODULE)
    file = folder / "scenario.yaml"
    file.write_text(json.dumps(SCENARIO | {"algorithm": "dpsgd", "world": world}))
    return file


def test_its_options_are_read_and_its_entry_is_at_hand(tmp_path: Path) -> None:
    file = written(tmp_path, {"kind": "worlds:THREADS", "threads": 3, "start_timeout": "5s"})
    loaded = load(file)
    assert isinstance(loaded.world, RealOptions)
    assert loaded.world.start_timeout == 5 * 10**9
    assert loaded.world.entry.make is not None  # type: ignore[attr-defined]
    assert to_plain(loaded)["world"]["threads"] == 3  # type: ignore[index]
    file.write_text(json.dumps(to_plain(loaded)))
    assert load(file) == loaded


def test_without_options_of_its_own_it_has_those_of_every_world(tmp_path: Path) -> None:
    assert load(written(tmp_path, "worlds:BARE")).world.loss_layer == "message"


@pytest.mark.parametrize(
    ("world", "said"),
    [
        ("worlds:NO_WORLD", "the world 'worlds:NO_WORLD' is a SimpleNamespace, expected a WorldEntry"),
        ("worlds:NO_OPTIONS", "expected a class of WorldOptions"),
        ("worlds:NOWHERE", "world 'worlds:NOWHERE': module 'worlds' has no attribute 'NOWHERE', "),
        ({"kind": "worlds:THREADS", "thread": 3}, "did you mean 'threads'?"),
        ({"kind": "worlds:THREADS", "threads": 0}, "expected at least 1"),
        ({"kind": "worlds:THREADS", "loss_layer": "packet"}, "has no packets"),
    ],
)
def test_what_is_no_world_is_refused(tmp_path: Path, world: object, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(written(tmp_path, world))
    assert said in str(caught.value)
