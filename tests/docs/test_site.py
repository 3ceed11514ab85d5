"""The documentation as a site: it builds, no link and no anchor is dead, the reference comes from the docstrings."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(target: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(target)]
    return subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(target)
    assert built.returncode == 0, built.stdout
    return target


def test_every_page_is_there_and_the_readme_is_the_first(site: Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    missing = [str(page) for page in pages if page.name != "README.html" and not (site / page).exists()]
    assert not missing
    first = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="tutorial.html"' in first, "links of the README lead to pages of the site"
    assert 'href="docs/' not in first


def test_a_copied_console_block_is_its_commands(site: Path) -> None:
    page = (site / "lecture.html").read_text(encoding="utf-8")
    assert '<link rel="stylesheet" href="site.css">' in page
    assert '<span class="gp">$ </span>netdfl' in page
    assert "[data-md-copying] .gp" in (site / "site.css").read_text(encoding="utf-8")


def test_the_reference_shows_what_docstrings_say(site: Path) -> None:
    reference = (site / "api.html").read_text(encoding="utf-8")
    assert "Run <code>scenario</code> in its world, and judge the run." in reference
    assert 'id="netdfl.record.run.Run.messages"' in reference


def test_a_dead_link_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[gone](gone.md)\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    settings = re.sub(
        r"^(nav|hooks|plugins|exclude_docs|not_in_nav):.*\n(?:[ ].*\n)*", "", settings, flags=re.MULTILINE
    )
    (tmp_path / "mkdocs.yml").write_text(settings)
    built = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert built.returncode != 0
    assert "gone.md" in built.stdout


def test_the_pictures_of_the_concepts_are_those_that_its_script_draws() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    script = (ROOT / "docs" / "concepts" / "pictures.py").read_text(encoding="utf-8")
    shown = set(re.findall(r"\(concepts/(\w+)\.svg\)", page))
    assert shown == set(re.findall(r'yield "(\w+)"', script))
    assert shown == {file.stem for file in (ROOT / "docs" / "concepts").glob("*.svg")}


def test_the_pictures_of_the_gallery_are_those_that_its_script_draws() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = runpy.run_path(str(ROOT / "docs" / "gallery" / "pictures.py"))
    cells = re.findall(r"\[!\[([\w/]+)\]\(docs/gallery/(\w+)\.\w+\)\]\(scenarios/([\w/.]+)\)<br>", readme)
    assert {picture: scenario for _, picture, scenario in cells} == {
        picture: scenario for picture, (scenario, _) in script["PICTURES"].items()
    }
    assert [name for name, _, scenario in cells if scenario != f"{name}.yaml"] == []
    shown = re.findall(r"docs/gallery/(\w+\.(?:svg|png))", readme)
    assert sorted(shown) == sorted(file.name for file in (ROOT / "docs" / "gallery").glob("*.*g"))
    assert len(shown) == 10
    assert "Ten scenarios that come along" in readme
