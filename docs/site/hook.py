"""What the site shows beside `docs/`: pages and files of the repository's root, and the reference from the docstrings.

On the site the root's pages lie beside those of `docs/`, and its README is the first page. Links are turned
accordingly; a file of the repository that a page links to comes along, so that no link leads out of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
ABOVE = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the root that keep their name on the site."""
LINK = re.compile(r"(\]\(|src=\")([^)\s\"#]+)(#[^)\s\"]*)?(?=[)\s\"])")
FENCE = re.compile(r"^```(\w+) (\S+)$", re.MULTILINE)
"""A block that is a file, or one with a word for the tests of these pages."""
REFERENCE = {
    "Run, and read what a run left": ("netdfl.running.run.run", "netdfl.running.objects.load", "netdfl.record.run"),
    "Suites for parts of your own": ("netdfl.testing.contract", "netdfl.testing.transports", "netdfl.testing.worlds"),
    "Names that parts are written with": ("netdfl.core.types",),
}
"""The chapters of the reference, each with the modules or functions that it shows."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root's pages, the reference, and the files that pages link to."""
    add(files, config, "index.md", as_on_site((ROOT / "README.md").read_text(encoding="utf-8"), "README.md"))
    for name in ABOVE:
        add(files, config, name, as_on_site((ROOT / name).read_text(encoding="utf-8"), name))
    add(files, config, "api.md", reference())
    for name in sorted(linked_files(files)):
        files.append(File.generated(config, f"files/{name}.txt", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links of a page of `docs/`."""
    if page.file.generated_by:
        return markdown
    return as_on_site(markdown, f"docs/{page.file.src_uri}")


def add(files: Files, config: MkDocsConfig, name: str, text: str) -> None:
    """Put a page onto the site."""
    files.append(File.generated(config, name, content=text))


def reference() -> str:
    """The page that mkdocstrings fills from the docstrings."""
    chapters = (f"# {title}\n\n" + "".join(f"::: {name}\n\n" for name in names) for title, names in REFERENCE.items())
    return "\n".join(chapters)


def as_on_site(text: str, source: str) -> str:
    """`text` of the repository's file `source`, with links and titles of code as the site needs them."""
    here = posixpath.dirname(place(source))

    def turned(found: re.Match[str]) -> str:
        start, target, anchor = found[1], found[2], found[3] or ""
        path = resolved(source, target)
        if path is None:
            return found[0]
        return f"{start}{posixpath.relpath(place(path), here or '.')}{anchor}"

    titled = FENCE.sub(lambda found: f'```{found[1]} title="{found[2]}"' if "." in found[2] else f"```{found[1]}", text)
    return LINK.sub(turned, titled)


def resolved(source: str, target: str) -> str | None:
    """The repository's file that a link in `source` leads to; None where it leads to something else."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    return path if (ROOT / path).is_file() else None


def place(path: str) -> str:
    """Where a file of the repository lies on the site."""
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    if path == "README.md":
        return "index.md"
    return path if path in ABOVE else f"files/{path}.txt"


def linked_files(files: Files) -> set[str]:
    """Files outside the site that its pages link to."""
    pages = [page for page in files.documentation_pages() if not page.generated_by]
    sources = ["README.md", *ABOVE, *(f"docs/{page.src_uri}" for page in pages)]
    found = set()
    for source in sources:
        for link in LINK.finditer((ROOT / source).read_text(encoding="utf-8")):
            path = resolved(source, link[2])
            if path is not None and place(path).startswith("files/"):
                found.add(path)
    return found
