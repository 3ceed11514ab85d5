"""The load of core links by time, as the page has it, from the rows of a run and its `underlay.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError
from netdfl.core.fates import LOSS, Fate
from netdfl.core.types import Kind, Message, Payload
from netdfl.record.directory import RunDirectory
from netdfl.record.run import open_run
from netdfl.record.store import StoreWriter
from netdfl.report.data import page_data
from tests.record.outcomes import outcome_of

SECOND = 10**9
LINK = {"rate_bps": 8e6, "latency_s": 0.0, "loss": 0.0}
THREE: dict[str, Any] = {
    "sites": ["a", "b", "c"],
    "site_of": [0, 1, 2, 0],
    "links": [LINK | {"src": 0, "dst": 1}, LINK | {"src": 1, "dst": 2}, LINK | {"src": 0, "dst": 2, "rate_bps": 4e6}],
    "routes": [{"since_s": 0.0, "ways": [[0, 1, [0]], [1, 2, [1]], [0, 2, [0, 1]]]}],
}
"""Three sites in a row, 8 Mbit/s; there is a slower way from a to c, which no message takes at first."""
Sent = tuple[int, int, float, float | None, int]


def page_of(folder: Path, underlay: Mapping[str, object], messages: Sequence[Sent]) -> Any:
    """The part `underlay` of the page of a run with messages: source, destination, sent, arrived, bytes."""
    directory = RunDirectory.create(folder, "u", 0, out=folder / "run")
    directory.write("scenario.yaml", "name: u\n")
    directory.write_json("underlay.json", underlay)
    with StoreWriter(directory.path, "fleet") as writer:
        writer.event(10 * SECOND, None, 0, "end")
        for number, (src, dst, sent, arrived, nbytes) in enumerate(messages):
            message = Message(src, dst, Kind.DATA, 0, number, 0, 0, Payload())
            at = None if arrived is None else round(arrived * SECOND)
            fate = Fate.dropped(LOSS) if arrived is None else Fate.DELIVERED
            writer.outcome(outcome_of(message, nbytes, round(sent * SECOND), at, fate))
    return page_data(open_run(directory.path))


def loads(data: Any) -> dict[str, dict[float, float]]:
    """The load of each core link that carried something, by the moments at which it changes."""
    found: dict[str, dict[float, float]] = {}
    moments, of = data["frame"]["moments"], data["underlay"]
    for link in of["links"]:
        before, changes = 0.0, {}
        for moment, load in zip(moments[:-1], [*link["load"][1:]], strict=True):
            if abs(load - before) > 1e-3:
                changes[round(moment, 2)] = before = load
        found[f"{of['sites'][link['src']]}->{of['sites'][link['dst']]}"] = changes
    return found


def test_a_message_loads_each_core_link_of_its_way_from_its_sending_to_its_arrival(tmp_path: Path) -> None:
    data = page_of(tmp_path, THREE, [(0, 2, 1.0, 3.0, 10**6), (3, 1, 2.0, 4.0, 10**6), (0, 3, 0.0, 9.0, 10**6)])
    assert loads(data) == {"a->b": {1.0: 0.5, 2.0: 1.0, 3.0: 0.5, 4.0: 0.0}, "b->c": {1.0: 0.5, 3.0: 0.0}, "a->c": {}}
    first, second, third = data["underlay"]["links"]
    assert (first["num_shared"], first["shared"], first["nbytes"]) == (2, "0 → 2, 3 → 1", 2 * 10**6)
    assert (second["num_shared"], second["shared"]) == (1, "0 → 2")
    assert (third["num_shared"], third["shared"], third["nbytes"]) == (0, "", 0)
    assert data["underlay"]["nodes"] == ["0, 3", "1", "2"]


def test_messages_of_one_edge_go_one_after_another_and_lost_ones_load_nothing(tmp_path: Path) -> None:
    sent = [(0, 1, 1.0, 2.0, 10**6), (0, 1, 1.0, 3.0, 10**6), (0, 1, 5.0, None, 10**6)]
    assert loads(page_of(tmp_path, THREE, sent))["a->b"] == {1.0: 1.0, 3.0: 0.0}


def test_what_is_under_way_at_a_cut_waits_and_goes_over_the_new_way_once_routes_change(
    tmp_path: Path,
) -> None:
    links = [THREE["links"][0] | {"down_s": [[2.0, 6.0]]}, *THREE["links"][1:]]
    routes = [THREE["routes"][0], {"since_s": 3.0, "ways": [[0, 1, [0]], [1, 2, [1]], [0, 2, [2]]]}]
    data = page_of(tmp_path, THREE | {"links": links, "routes": routes}, [(0, 2, 1.0, 5.0, 2 * 10**6)])
    found = loads(data)
    assert found["a->b"] == {1.0: 1.0, 2.0: 0.0}, "half of it, in the second before the cut"
    assert found["a->c"] == {3.0: 1.0, 5.0: 0.0}
    (down,) = [link["down"] for link in data["underlay"]["links"] if link["down"]]
    assert down == [[2.0, 6.0]]


def test_a_message_that_waits_for_the_end_of_a_cut_loads_nothing_meanwhile(tmp_path: Path) -> None:
    links = [THREE["links"][0] | {"down_s": [[2.0, 4.0], [3.0, 5.0]]}, *THREE["links"][1:]]
    found = loads(page_of(tmp_path, THREE | {"links": links}, [(0, 1, 1.0, 6.0, 10**6)]))
    assert found["a->b"] == {1.0: 0.5, 2.0: 0.0, 5.0: 0.5, 6.0: 0.0}


def test_a_link_of_unlimited_rate_has_no_load_and_the_fullest_comes_first(tmp_path: Path) -> None:
    links = [THREE["links"][0] | {"rate_bps": None}, *THREE["links"][1:]]
    data = page_of(tmp_path, THREE | {"links": links}, [(0, 2, 1.0, 3.0, 10**6)])
    assert [(link["src"], link["load"] is None) for link in data["underlay"]["links"]] == [
        (1, False),
        (0, True),
        (0, False),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"site_of": [0, 3]}, "site 3 is none of 3"),
        ({"routes": [{"since_s": 0.0, "ways": [[0, 1, [3]]]}]}, "core link 3 is none of 3"),
        ({"routes": []}, "routes"),
        ({"links": [LINK | {"src": 0, "dst": 1, "rate_bps": 0.0}]}, "rate_bps"),
    ],
)
def test_a_damaged_underlay_is_told_with_its_place(change: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"underlay\.json is damaged: .*{said}"):
        page_of(tmp_path, THREE | change, [(0, 1, 1.0, 2.0, 10)])


def test_a_run_without_an_underlay_has_none(tmp_path: Path) -> None:
    page_of(tmp_path, THREE, [])
    (tmp_path / "run/underlay.json").unlink()
    assert page_data(open_run(tmp_path / "run"))["underlay"] is None
