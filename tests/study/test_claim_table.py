"""The table of claims says what decided each, what it cost, and what it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.cli import claims as claims_commands
from netdfl.core.errors import InputError
from netdfl.study.claims.given import read_rule, rule
from netdfl.study.claims.page import BEGIN, END, filled, table, write_or_check
from netdfl.study.claims.rows import Proof, RowFolder
from netdfl.study.claims.work import ClaimStudy
from tests.study.claim_rows import SMALL, a_row, noisy_rows, rule_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "fail"}, "MNIST/IID/DFedAvgM has the verdict fail"),
        ({"course": ()}, "mean_last_5 of MNIST/IID/DFedAvgM was not measured"),
        ({"partition": "other"}, "the partitions differ"),
    ],
)
def test_a_claim_that_waits_in_vain_says_for_what(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    study = ClaimStudy(read_rule(SMALL), RowFolder(tmp_path))
    noisy_rows(study.rows, study, 1, **changes)
    assert f"| **undecided**: seed 0: {why} | 2 min |" in table(study)
    assert list(study.missing("momentum")) == []


def test_the_table_says_which_code_proved_how_many_rows(tmp_path: Path) -> None:
    study = ClaimStudy(read_rule(SMALL), RowFolder(tmp_path))
    noisy_rows(study.rows, study, 2)
    wanted = study.cells["momentum"]["worse"]
    names = {"file": wanted.file.stem, "method": wanted.method, "arithmetic": "here", "code": "0123456789"}
    study.rows.prove(Proof(**names, sets=(), event_log_hash="log", commit="", cpu_s=1.0))  # type: ignore[arg-type]
    assert table(study).endswith("|\n| 2 | 01234567 | here |\n| 2 | none |  |\n")


def test_the_page_has_the_table_of_the_rows(tmp_path: Path) -> None:
    study = ClaimStudy(read_rule(SMALL), RowFolder(tmp_path / "rows"))
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    assert not write_or_check(page, study, check=True)
    assert write_or_check(page, study, check=False)
    assert write_or_check(page, study, check=True)
    text = page.read_text()
    assert text.startswith(f"before\n\n{BEGIN}\n| claim | printed in |")
    assert text.endswith(f"{END}\n\nafter\n")
    assert "| Momentum adds to DFedAvg | 004 T1 | +0.22 | ten classes of noise |  | 0 |  | **undecided** |" in text
    assert "| 0 min; cost not known yet |" in text
    assert "0.0 of 1 hours of CPU time are spent. 1 of 1 claims are undecided." in text
    with pytest.raises(InputError, match="needs a line"):
        filled("nothing", study)


def test_the_p_value_of_the_table_is_the_one_that_decided(tmp_path: Path) -> None:
    study = ClaimStudy(rule_of(1, instead=False), RowFolder(tmp_path))
    for seed, gain in enumerate((0.0002, -0.0002, 0.0001, -0.0001, 0.00015)):
        for side, wanted in study.cells["c0"].items():
            course = (0.5 + (gain if side == "better" else 0),)
            study.rows.add(
                a_row(file=wanted.file.stem, method=wanted.method, sets=wanted.cell(seed).sets, course=course)
            )
    found = study.decisions()["c0"]
    assert (found.word, found.p) == ("fails", 1)
    assert f"| {found.p_less:.2g} (half or more) | **fails**: the gain is less than half" in table(study)


def test_a_run_that_serves_two_claims_is_spent_once(tmp_path: Path) -> None:
    folder = RowFolder(tmp_path)
    for sets, log in ((("a",), "e"), (("b",), "e"), (("c",), "f")):
        folder.add(a_row(sets=sets, event_log_hash=log))
    assert ClaimStudy(rule_of(1), folder).spent_s() == 120


def test_a_table_needs_rows_and_a_page_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no folder .*nothing with rows of finished cells; go to a clone"):
        claims_commands.table(tmp_path / "nothing")
    with pytest.raises(InputError, match="--check says whether a page is up to date"):
        claims_commands.table(tmp_path, check=True)
    with pytest.raises(InputError, match="can't be read"):
        claims_commands.table(tmp_path, write=tmp_path / "no" / "page.md")


def test_the_table_in_the_documentation_is_that_of_the_committed_rows() -> None:
    study = ClaimStudy(rule(), RowFolder(ROOT / "docs/reproduction/rows"))
    assert table(study) in (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
