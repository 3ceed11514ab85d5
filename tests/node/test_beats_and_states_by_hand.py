"""How many heartbeats are lost, how long a wait is left to them, and which files are no states of a node."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from netdfl.compression.tensor_files import as_bytes
from netdfl.core.errors import InputError
from netdfl.core.fates import Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.node.checkpoint import HEADER, load_state, save_state
from netdfl.node.heartbeats import AVERAGES, MOST_BEATS, RECENT, Heartbeats, _Beats
from netdfl.node.mailbox import Mailbox

EVERY, MISSES = 100, 3


@given(st.lists(st.integers(1, 3) | st.integers(90, 130) | st.integers(-400, 0), max_size=250))
@example([1] * 250)
@example([1] * 60 + [40] + [1] * 60 + [40] + [1] * 60)
@example([2] * 120)
@example([5, 101, 1, 2, 99, 2, 100, 2])
@example([7, -3, 1, 1, 2, -9, 4])
def test_what_is_lost_is_told_of_the_last_hundred_beats_and_those_before(steps: list[int]) -> None:
    beats, number, gap, lossy_ns = _Beats(), 0, None, 0
    heard: list[int] = []  # of this stretch
    before = 0, 0
    for at_ns, step in enumerate([0, *steps]):
        number = max(0, number + step)
        if at_ns and step <= 0:  # another life of the peer
            heard, before, gap = [], (0, 0), None
        elif at_ns and step > 1:
            lossy_ns = at_ns if gap is None or number - gap > RECENT else lossy_ns
            gap = number
        if heard and number - heard[0] >= RECENT:
            heard, before = [], (len(heard), number - heard[0])
        heard.append(number)
        beats.take(number, at_ns)
        sent = number - heard[0] + 1 + before[1]
        assert beats.lost == pytest.approx(1 - (len(heard) + before[0]) / sent)
        assert beats.lossy_ns == lossy_ns
    assert _Beats().lost == 0.0


def heartbeats(now: int) -> Heartbeats:
    clock: Any = SimpleNamespace(now_ns=lambda: now)
    return Heartbeats(
        0,
        (1,),
        every_ns=EVERY,
        misses=MISSES,
        clock=clock,
        transport=None,  # type: ignore[arg-type]
        mailbox=Mailbox(keep_late=False),
        gone=lambda peer: None,
        returned=lambda peer: None,
    )


@pytest.mark.parametrize(("heard_ns", "overdue"), [(10_000, False), (9_850, False), (9_849, True)])
def test_a_beat_is_overdue_after_one_and_a_half_of_its_times(heard_ns: int, overdue: bool) -> None:
    its = heartbeats(10_000)
    its._heard_ns[1] = heard_ns
    assert its.may_call_gone(1, 0) is overdue
    assert not its.may_call_gone(2, 0)
    its.silent.add(1)
    assert not its.may_call_gone(1, 0)


def expected(came: int, sent: int) -> int:
    """After how many beats three in a row are lost on average, by each beat's own chance; 0 where that is rare."""
    lost = 1 - came / sent
    if lost <= 0:
        return 0
    mean = (1 - lost**MISSES) / (lost**MISSES * (1 - lost))
    return int(mean) if mean <= MOST_BEATS else 0


@pytest.mark.parametrize(("came", "chance"), [(100, 0), (99, 0), (90, 0), (89, 843), (50, 14), (40, 9), (1, 3)])
def test_a_wait_is_left_to_losses_in_a_row_for_five_times_as_long_as_they_take(came: int, chance: int) -> None:
    assert expected(came, 100) == chance
    now = 10**6
    its = heartbeats(now)
    its._heard_ns[1] = now
    its._beats[1] = _Beats(last=99, first=0, came=came)
    limit = EVERY * (MISSES + 1 + AVERAGES * chance)
    assert [its.may_call_gone(1, now - limit - more) for more in (0, 1)] == [True, False]
    its._beats[1].lossy_ns = now - limit + 5
    assert its.may_call_gone(1, now - limit - 1) is (chance > 0), "it counts from when beats began to be lost"


@pytest.mark.parametrize(("epoch", "heard", "lost"), [(0, (0, 1, 4), 0.4), (1, (0, 1, 4), 0.4), (1, (7, 8, 11), 0.4)])
def test_a_later_life_counts_from_the_first_beat_that_it_hears(epoch: int, heard: tuple[int, ...], lost: float) -> None:
    its = heartbeats(7)
    its.epoch = epoch
    for number in heard:
        its.hear(Message(1, 0, Kind.HEARTBEAT, 0, number, 0, 0, Payload()))
    assert its._beats[1].lost == pytest.approx(lost)


def test_a_strangers_beat_is_taken_and_is_nothing() -> None:
    its = heartbeats(7)
    assert its.hear(Message(8, 0, Kind.HEARTBEAT, 0, 3, 0, 0, Payload())) is Fate.DELIVERED
    assert (its._heard_ns, its._beats[1]) == ({1: 0}, _Beats())
    assert its.hear(Message(1, 0, Kind.HEARTBEAT, 0, 3, 0, 0, Payload())) is Fate.DELIVERED
    assert (its._heard_ns, its._beats[1].last) == ({1: 7}, 3)


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
