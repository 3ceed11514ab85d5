"""Do what docs/by_hand.md says, on ports that are free here."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from test_tutorial import ROOT, blocks, check_console, run


def free_decade() -> int:
    """A number that gives free ports with each of the digits 0 to 3 after it."""
    while True:
        decade = random.randrange(2000, 3000)
        try:
            with ExitStack() as stack:
                for digit in range(4):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", 10 * decade + digit))
        except OSError:
            continue
        return decade


def test_every_block_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "by_hand.md").read_text(encoding="utf-8")
    (tmp_path / "by_hand.md").write_text(page.replace("510", str(free_decade())), encoding="utf-8")
    found = blocks(tmp_path / "by_hand.md")
    for block in found:
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "console":
            check_console(block.text, tmp_path)
        else:
            done = run(f"set -e\n{block.text}", tmp_path)
            assert done.returncode == 0, done.stdout
    assert [block.kind for block in found] == ["yaml", "yaml", "sh", "sh", "console"]
