"""What nodes' processes printed is read by node, whole or as it comes, and does nothing to a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.record.logs import PIECE, NodeLogs, follow


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose nodes 0 and 1 have processes of their own, and whose nodes 2 to 5 share one; node 1 lived twice."""
    (tmp_path / "logs").mkdir()
    for name in ("000", "001", "001-1", "002-003", "evaluator"):
        (tmp_path / "logs" / f"{name}.log").write_text(f"of {name}\n")
    return tmp_path


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (0, [("node 0", "of 000")]),
        (1, [("node 1, life 1", "of 001-1"), ("node 1", "of 001")]),
        (2, [("nodes from 2", "of 002-003")]),
        (5, [("nodes from 2", "of 002-003")]),
    ],
)
def test_a_node_has_the_logs_of_its_processes(run: Path, node: int, expected: list[tuple[str, str]]) -> None:
    assert sorted(NodeLogs(run, node).new()) == sorted(expected)


def test_without_a_node_all_are_read_and_each_line_is_named(run: Path) -> None:
    assert {line.whose for line in NodeLogs(run).new()} == {
        *("node 0", "node 1", "node 1, life 1", "nodes from 2", "evaluator")
    }


def test_a_node_that_has_no_process_of_its_own_has_no_log(run: Path) -> None:
    (run / "logs" / "002-003.log").unlink()
    assert not NodeLogs(run, 3).are_there
    assert NodeLogs(run, 1).are_there


def test_lines_come_once_and_whole_whatever_is_written_meanwhile(run: Path) -> None:
    log = run / "logs" / "000.log"
    steps = iter(
        [(log, "half a "), (log, "line\nand "), (run / "logs" / "000-1.log", "born again\n"), (log, "the end")]
    )
    going = True

    def wait() -> None:
        nonlocal going
        step = next(steps, None)
        if step is None:
            going = False
        else:
            path, text = step
            with path.open("a") as file:
                file.write(text)

    found = [line.text for line in follow(NodeLogs(run, 0), lambda: going, wait)]
    assert found == ["of 000", "half a line", "born again", "and the end"]


def test_a_long_log_is_read_to_its_end(run: Path) -> None:
    (run / "logs" / "000.log").write_text("x" * (PIECE - 3) + "\nlast\n")
    assert [len(line.text) for line in NodeLogs(run, 0).new()] == [PIECE - 3, 4]


def test_a_line_without_an_end_comes_in_pieces(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netdfl.record.logs.PIECE", 10)
    (run / "logs" / "000.log").write_text("x" * 95 + "\nlast\n" + "y" * 35)
    lines = [line.text for line in NodeLogs(run, 0).new(last=True)]
    assert max(map(len, lines)) <= 20
    assert "|".join(lines).replace("x|x", "xx").replace("y|y", "yy") == "x" * 95 + "|last|" + "y" * 35


def test_who_follows_a_log_has_its_first_line_before_the_rest_is_read(run: Path) -> None:
    (run / "logs" / "000.log").write_text(3 * ("x" * PIECE + "\n"))
    logs = NodeLogs(run, 0)
    next(follow(logs, lambda: True, lambda: None))
    assert sum(len(line.text) for line in logs.new(last=True)) > PIECE


def test_of_the_last_lines_no_more_is_read_than_was_asked_for(run: Path) -> None:
    for name in ("001", "001-1", "002-003", "evaluator"):
        (run / "logs" / f"{name}.log").unlink()
    with (run / "logs" / "000.log").open("wb") as log:
        log.truncate(1 << 40)  # a hole: it takes no place
    (run / "logs" / "001.log").write_text("one\n\ntwo \u00e4\u00e4\u00e4\nthree")
    last = NodeLogs(run).last
    assert last(2, 1 << 20, 5) == [("node 1", "two \u00e4"), ("node 1", "three")]
    assert last(9, 30, 5) == [("node 0", "?????"), ("node 1", "one"), ("node 1", ""), *last(2, 1 << 20, 5)]
    (run / "logs" / "000.log").unlink()
    (run / "logs" / "000.log").symlink_to(run / "logs" / "001.log")
    assert last(9, 99, 5)[0] == ("node 1", "one")


def test_what_a_node_printed_moves_no_cursor_and_a_link_is_not_read(run: Path, tmp_path: Path) -> None:
    (run / "logs" / "000.log").write_bytes(b"\x1b[2Jgone\ttab \xff\n")
    (run / "logs" / "001.log").unlink()
    (tmp_path / "secret").write_text("secret\n")
    (run / "logs" / "001.log").symlink_to(tmp_path / "secret")
    said = [line.text for line in NodeLogs(run).new()]
    assert "?[2Jgone\ttab \ufffd" in said
    assert "secret" not in said
