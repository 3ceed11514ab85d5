"""The README's commands are the ones that CI runs, and its links lead somewhere."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

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


def test_links_within_the_repository_lead_to_files() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("**/*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
