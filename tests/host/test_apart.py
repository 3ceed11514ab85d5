"""A node that shares neither disk nor clock with its supervisor: its clock is found, its files arrive whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netdfl.core.control import AskClock, ClockReading, FilePart, Report
from netdfl.host import apart
from netdfl.host.apart import ASKS, ClockOffset, FileUpload
from netdfl.supervisor.mirror import mirror

DELAYS = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=ASKS, max_size=ASKS)


@given(st.integers(-(10**12), 10**12), DELAYS)
def test_a_clock_is_found_to_half_of_what_the_fastest_answer_took(ahead_ns: int, delays: list[tuple[int, int]]) -> None:
    now, asked = 10**15, list[AskClock]()

    def ask(report: Report) -> None:
        assert isinstance(report, AskClock)
        asked.append(report)

    offset = ClockOffset(ask, lambda: now)
    offset.begin()
    for number, (there, back) in enumerate(delays):
        assert not offset.known
        assert asked[-1] == AskClock(number)
        now += there
        reading = ClockReading(number, now + ahead_ns)
        now += back
        offset.told(reading)
        offset.told(reading)  # an answer that comes twice tells nothing
    assert offset.known
    assert len(asked) == ASKS
    assert abs(offset.ahead_ns - ahead_ns) <= min(there + back for there, back in delays) / 2 + 1


class Carrier:
    """Mirrors what it is told, as the supervisor does; keeps what is on its way."""

    def __init__(self, target: Path, node: int) -> None:
        self.target, self.node, self.most = target, node, 0
        self.waiting: list[FilePart] = []

    def report(self, report: Report) -> None:
        assert isinstance(report, FilePart)
        self.waiting.append(report)
        self.most = max(self.most, len(self.waiting))

    async def flushed(self) -> None:
        for part in self.waiting:
            mirror(self.target, self.node, part)
        self.waiting.clear()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in ("store", "models"):
        (here / folder).mkdir(parents=True)
    there.mkdir()
    return here, there


async def test_files_that_grow_arrive_part_by_part_and_never_much_is_on_its_way(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "CHUNK_BYTES", 10)
    here, there = folders
    carrier = Carrier(there, 3)
    shipping, file = FileUpload(here, 3, carrier), here / "store/messages-003.jsonl"
    for text in ("first line\n", "a second line, a longer one\n", "", "third\n"):
        with file.open("a") as written:
            written.write(text)
        await shipping.grown()
        assert (there / "store/messages-003.jsonl").read_text() == file.read_text()
    assert carrier.most == 1


async def test_nodes_that_share_a_folder_ship_their_own_files_alone(folders: tuple[Path, Path]) -> None:
    """The carrier's mirror raises at a file of another node."""
    here, there = folders
    carrier = Carrier(there, 3)
    for name in ("messages-003", "messages-004", "messages-003-1", "metrics-1003"):
        (here / "store" / f"{name}.jsonl").write_text("a line\n")
    await FileUpload(here, 3, carrier).grown()
    assert sorted(path.stem for path in (there / "store").iterdir()) == ["messages-003", "messages-003-1"]


async def test_a_model_appears_whole_and_a_newer_one_takes_its_place(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "CHUNK_BYTES", 4)
    here, there = folders
    carrier = Carrier(there, 3)
    shipping = FileUpload(here, 3, carrier)
    file, arrived = (folder / "models/003.safetensors" for folder in folders)
    file.write_bytes(b"0123456789")
    await shipping.whole(file)
    assert not arrived.exists()  # its last part is still on its way
    await carrier.flushed()
    assert arrived.read_bytes() == b"0123456789"
    file.write_bytes(b"new")
    await shipping.whole(file)
    await carrier.flushed()
    assert arrived.read_bytes() == b"new"


FOREIGN = """
../003.safetensors /etc/003 models/../../003.safetensors models/004.safetensors models/sub/003.safetensors
checkpoints/004.safetensors store/messages-13.jsonl scenario.yaml
""".split()


@pytest.mark.parametrize("path", [*FOREIGN, ""])
def test_a_node_writes_no_file_but_its_own(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no file of node 3"):
        mirror(tmp_path, 3, FilePart(path, 0, b"x", grows=True))
    assert not list(tmp_path.iterdir())


def test_what_came_before_comes_again_from_a_later_life_and_a_gap_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "store/metrics-003.jsonl"
    for offset, data, after in ((0, b"abc", b"abc"), (0, b"ab", b"abc"), (0, b"abcd", b"abcd"), (3, b"de", b"abcde")):
        mirror(tmp_path, 3, FilePart("store/metrics-003.jsonl", offset, data, grows=True))
        assert file.read_bytes() == after
    with pytest.raises(ValueError, match="expected bytes from 5 on"):
        mirror(tmp_path, 3, FilePart("store/metrics-003.jsonl", 6, b"x", grows=True))
    assert file.read_bytes() == b"abcde"
