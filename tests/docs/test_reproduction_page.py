"""The readings of FedSynSAM and the settings of FedSMOO stand on the page as the files beside it have them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
CELLS = {"QSGD, 4 bits": "QSGD-4bit", "top-k, 10 %": "top-k 0.1"}


def shown(name: str) -> list[str]:
    """The columns of a row of the page: printed, the first reading, the second."""
    (line,) = re.findall(
        rf"^\| {re.escape(name)} \|(.*)\|$", (DOCS / "reproduction.md").read_text("utf-8"), re.MULTILINE
    )
    return [column.strip() for column in line.split("|")]


@pytest.mark.parametrize("name", CELLS)
def test_the_first_reading_is_the_mean_of_the_rows_of_the_claims(name: str) -> None:
    cell = f"Fashion-MNIST/Path(1)/10 clients/FedSynSAM/{CELLS[name]}"
    rows = [json.loads(file.read_text("utf-8")) for file in sorted((DOCS / "reproduction" / "rows").glob("*.json"))]
    ends = {row["seed"]: 100 * fmean(row["course"][-5:]) for row in rows if row["cell"] == cell and row["seed"] < 3}
    assert sorted(ends) == [0, 1, 2]
    assert shown(name)[1] == f"{fmean(ends.values()):.2f} ± {stdev(ends.values()):.2f}"


@pytest.mark.parametrize("name", CELLS)
def test_the_second_reading_is_that_of_its_table(name: str) -> None:
    made = json.loads((DOCS / "reproduction" / "003-TII-c2b98d.json").read_text("utf-8"))
    (row,) = [each for each in made["rows"] if each["compressor"] == CELLS[name]]
    assert shown(name)[0] == f"{row['published']:.2f} ± {row['published_std']:.2f}"
    several = len(row["seeds"]) > 1
    measured = f"{row['measured']:.2f} ± {row['std']:.2f}" if several else f"{row['measured']:.2f}"
    assert shown(name)[2].startswith(f"[{measured}](")
    assert several or shown(name)[2].endswith(f", seed {row['seeds'][0]} alone")


def test_the_settings_of_fedsmoo_are_those_of_their_tables() -> None:
    text = (DOCS / "reproduction.md").read_text("utf-8").partition("### FedSMOO, its penalty")[2].partition("###")[0]
    lines = re.findall(r"^\| (.+?) \| (.+?) \| \[(.+?)\]\(reproduction/(.+?)\.md\) \|$", text, re.MULTILINE)
    assert len(lines) == 9
    for changed, printed, measured, name in lines:
        made = json.loads((DOCS / "reproduction" / f"{name}.json").read_text("utf-8"))
        cell = "Fashion-MNIST/Path(1)/10 clients/FedSMOO/QSGD-4bit"
        (row,) = [each for each in made["rows"] if each["cell"] == cell]
        assert printed == f"{row['published']:.2f} ± {row['published_std']:.2f}"
        assert (measured, row["seeds"]) == (f"{row['measured']:.2f}", [0])
        assert made["sets"] == ([] if changed == "nothing" else [f"algorithm.{changed.strip('`')}"])
