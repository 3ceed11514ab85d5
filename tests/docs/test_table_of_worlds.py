"""ARCHITECTURE.md says what each world can do as the suite of worlds knows it."""

from __future__ import annotations

from netdfl.testing.worlds import WORLD_CHECKS, Options, TestedWorld
from netdfl.testing.worlds import WorldDifference as Row
from tests.own_worlds import OWN_WORLDS, PAGE, main, page, table


def test_the_table_is_up_to_date() -> None:
    assert main(["--check"]) == 0


def test_every_row_is_of_a_check_and_says_why() -> None:
    assert all(check in WORLD_CHECKS and row.why for world in OWN_WORLDS for check, row in world.differs.items())


def test_a_new_difference_is_seen() -> None:
    check = WORLD_CHECKS[0]
    other = TestedWorld("other", Options(world={"kind": "other"}), {check: Row("it is shut")})
    assert "| no: it is shut |" in table([other])
    text = PAGE.read_text(encoding="utf-8")
    assert page(text.replace("| yes |", "| perhaps |", 1)) == text
