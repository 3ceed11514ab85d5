"""The README's commands are the ones that CI runs, and its links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from netdfl.record.judge import CAUTIONS, Evidence, judge

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_has_two_commands_and_ci_runs_both() -> None:
    first = runpy.run_path(str(ROOT / "tests" / "run.py"))["FIRST_COMMAND"]
    commands = re.findall(r"^sh nodes/start\.sh.*$", README, flags=re.MULTILINE)
    assert commands == [first, "sh nodes/start.sh test"]
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_quickstart_in_the_readme_is_the_file() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    file = (ROOT / "scenarios" / "quickstart.yaml").read_text(encoding="utf-8")
    assert [line for line in file.splitlines() if not line.startswith("#")] == shown[0].splitlines()


def test_readme_and_results_name_the_checks_that_are_made_of_every_run() -> None:
    told: dict[str, Any] = {"died": {3: "it died"}, "cautions": {name: ["it did"] for name in CAUTIONS}}
    told |= {name: ["it is so"] for name in ("deadlocks", "open_stalls", "not_finite", "unfinished")}
    failed = {name for name, value in told.items() if judge(Evidence(**{name: value}), {}).verdict == "fail"}
    assert failed == told.keys() - {"cautions"}
    assert len(failed) == 5
    readme, results = (" ".join(page.split()) for page in (README, (ROOT / "docs/results.md").read_text("utf-8")))
    assert (
        "Five more checks are made of every run: no node died, none waits for ever in a deadlock or stands still at "
        "the end, all finished, all losses are finite." in readme
    )
    assert (
        "no node died unplanned, there is no deadlock, no stall is left at the end, all nodes finished, all losses are "
        "finite" in results
    )


def test_links_within_the_repository_lead_to_files() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("**/*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
