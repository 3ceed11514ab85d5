"""How many heartbeats are lost, how long a wait is left to them, and which files are no states of a node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from netdfl.compression.tensor_files import as_bytes
from netdfl.core.errors import InputError
from netdfl.node.checkpoint import HEADER, load_state, save_state

# states on disk


class Inner(NamedTuple):
    value: Any
    other: Any = None


class Alone(NamedTuple):
    value: Any


plain = 7


def loaded(path: Path, like: Any) -> Any:
    return load_state(path / "state", like)


def written(path: Path, structure: object, **arrays: torch.Tensor) -> None:
    (path / "state").write_bytes(as_bytes(arrays, {HEADER: json.dumps(structure)}, apart=False))


INNER = f"{__name__}:Inner"


@pytest.mark.parametrize(
    "structure",
    [
        {"tensor": 3},
        {"named": INNER},
        {"named": INNER, "fields": 7},
        {"tuple": 7},
        {"a": [], "b": []},
        {},
        {"dict": [[1, 2, 3]]},
        {"named": 4, "fields": {}},
    ],
)
def test_a_structure_that_holds_together_nothing_is_no_checkpoint(structure: object, tmp_path: Path) -> None:
    written(tmp_path, structure)
    with pytest.raises(InputError, match=r"expected a checkpoint.*start over"):
        load_state(tmp_path / "state", Inner(0), remedy="start over")


@pytest.mark.parametrize("header", [{}, {HEADER: "{"}, {"netdfl-state/2": "null"}])
def test_a_file_without_its_structure_is_no_checkpoint(header: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(as_bytes({}, header, apart=False))
    with pytest.raises(InputError, match="expected a checkpoint"):
        loaded(tmp_path, Inner(0))


@pytest.mark.parametrize(
    ("state", "like", "fits"),
    [
        ([Inner(1), Alone(2)], [Inner(0), Alone(0)], True),
        ([Inner(1), Alone(2)], [Alone(0), Inner(0)], False),
        ([Inner(1)], [Inner(0), Inner(0)], False),
        ([Inner(1), Inner(2)], [Inner(0)], False),
        ([1, 2], [Inner(0)], False),
        ([1, 2, 3], [0], True),
        ([Inner(1), 2], [Inner(0), 0], True),
        ((1, 2), (0, 0, 0), True),
        ((1, 2), [0, 0], False),
        ({"a": 1}, {}, True),
        (3, 0, True),
        (3.0, 0, False),
        (True, 0, False),
    ],
)
def test_a_state_is_of_the_type_of_the_first_and_in_a_list_of_parts_so_is_each(
    state: Any, like: Any, fits: bool, tmp_path: Path
) -> None:
    save_state(state, tmp_path / "state")
    if fits:
        assert loaded(tmp_path, like) == state
    else:
        with pytest.raises(InputError):
            loaded(tmp_path, like)


@pytest.mark.parametrize("name", ["plain", "Path", "missing", "Inner.value"])
def test_a_part_is_a_named_tuple_beside_one_that_is_known(name: str, tmp_path: Path) -> None:
    written(
        tmp_path, {"named": INNER, "fields": {"value": {"named": f"{__name__}:{name}", "fields": {}}, "other": None}}
    )
    with pytest.raises(InputError, match=r"Inner\.value: expected a state of this run, got .* with "):
        loaded(tmp_path, Inner(0))


def test_a_part_of_a_module_that_is_not_known_is_none_of_this_run(tmp_path: Path) -> None:
    found = {"named": "collections:OrderedDict", "fields": {}}
    written(tmp_path, {"named": INNER, "fields": {"value": found, "other": None}})
    with pytest.raises(InputError, match="expected a state of this run, got collections:OrderedDict with "):
        loaded(tmp_path, Inner(0))


def test_each_tensor_is_compared_with_that_of_its_place(tmp_path: Path) -> None:
    one, two = torch.zeros(2), torch.zeros(3)
    save_state(Inner({"a": one, "b": [two, (one,)]}), tmp_path / "state")
    like = {"a": torch.ones(2), "b": [torch.ones(3), (torch.ones(2),)]}
    assert loaded(tmp_path, Inner(like)).value["b"][0].tolist() == [0.0] * 3
    for other, place in (
        ({"a": torch.ones(3)}, r"value\['a'\]"),
        (like | {"b": [torch.ones(2), (one,)]}, r"value\['b'\]\[0\]"),
        (like | {"b": [two, (torch.ones(2, dtype=torch.float64),)]}, r"value\['b'\]\[1\]\[0\]"),
    ):
        with pytest.raises(InputError, match=rf"Inner\.{place}: expected torch\.float"):
            loaded(tmp_path, Inner(other))
    loose = [{"a": 7}, {"b": [torch.ones(1)]}, {}, None, {"b": (two, one)}]
    assert all(loaded(tmp_path, Inner(each)) for each in loose), "what the first state does not show may be anything"


def test_views_of_one_memory_can_be_kept_and_what_the_first_state_does_not_show_is_a_tensor(tmp_path: Path) -> None:
    whole = torch.arange(4.0)
    save_state({"a": whole[:3], "b": whole[1:]}, tmp_path / "state")
    found = loaded(tmp_path, {})
    assert {name: type(each) for name, each in found.items()} == {"a": torch.Tensor, "b": torch.Tensor}
    assert [each.tolist() for each in found.values()] == [[0, 1, 2], [1, 2, 3]]


def test_what_stands_in_two_places_is_written_once(tmp_path: Path) -> None:
    one, same = torch.ones(1000), torch.ones(1000)
    sizes = []
    for state in ([one, one], [one, same]):
        save_state(state, tmp_path / "state")
        sizes.append((tmp_path / "state").stat().st_size)
    assert 4000 <= sizes[1] - sizes[0] < 4200
    save_state([same, one, same], tmp_path / "state")
    first, second, third = loaded(tmp_path, [one, one, one])
    assert first is third
    assert first is not second
