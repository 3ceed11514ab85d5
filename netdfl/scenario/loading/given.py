"""The reading of the file of a scenario or a study, with a remedy where the file does not exist."""

from __future__ import annotations

from pathlib import Path

from netdfl.core.errors import Problem, ScenarioError
from netdfl.core.given_files import given_text
from netdfl.scenario.loading.document import MOST_BYTES, Document, parse
from netdfl.scenario.loading.shipped import remedy_for

STUDY = "netdfl/study/1"
"""The schema of a study, a file with many scenarios."""


def document_of(file: Path, called: str) -> Document:
    """Read a YAML file that its user named as `called`. Raises ScenarioError if it can't be read."""
    return parse(_text(file), called)


def is_study_document(document: Document) -> bool:
    """Return whether a document is a study: it has a study's schema, or `sweeps`, a key that no scenario has."""
    data = document.data
    return isinstance(data, dict) and (str(data.get("schema", "")).startswith("netdfl/study") or "sweeps" in data)


def refuse_study(document: Document) -> None:
    """Raise ScenarioError if a document that should be a scenario is a study."""
    if is_study_document(document):
        remedy = f"`netdfl validate {document.file}` checks it, `netdfl sweep {document.file}` runs it"
        raise ScenarioError([document.problem((), "this is a study of many runs", "expected one scenario", remedy)])


def _text(file: Path) -> str:
    try:
        if file.exists() and not file.is_file():
            raise ScenarioError([Problem("is no regular file", "expected a YAML file", file=str(file))])
        if file.stat().st_size > MOST_BYTES:
            what = f"has more than {MOST_BYTES // 10**6} MB"
            raise ScenarioError([Problem(what, "expected a scenario; data belong into files beside it", "", str(file))])
        return given_text(file, MOST_BYTES)
    except OSError as exc:
        remedy = remedy_for(str(file)) if isinstance(exc, FileNotFoundError) else ""
        raise ScenarioError([Problem(f"can't be read: {exc.strerror}", "", remedy, str(file))]) from exc
    except ValueError as exc:
        what = str(exc).removeprefix(f"{file} ")
        raise ScenarioError([Problem(what, "expected a YAML file", file=str(file))]) from exc
