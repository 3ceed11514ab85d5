"""The reading of a study's form; wrong parts are replaced, so that the rest of the study can be checked as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from netdfl.core.errors import Problem
from netdfl.scenario.loading.document import Document, Path, item
from netdfl.scenario.loading.given import STUDY
from netdfl.scenario.loading.normalize import keys_at
from netdfl.scenario.loading.validation import FileForm, problems_of, written_path
from netdfl.scenario.model.choices import similar
from netdfl.scenario.model.study import StudyFile

_EXAMPLES = {"schema": STUDY, "name": "my-study", "sweeps": "{my-grid: {scenario: {...}}}"}
FORM = FileForm("the study", StudyFile, _EXAMPLES, "`netdfl list study` has all keys")
STAND_INS: Mapping[str, object] = {"schema": STUDY, "name": "unnamed", "sweeps": {}}
"""The replacements of a study's own keys, if they are missing or wrong."""
FIGURE = {"y": "test_loss", "x": "round"}
"""The replacement of a plot's specification whose form is wrong; the replacement is valid."""
SOME: Mapping[str, object] = {"any": {}}
"""The replacement of varied values whose form is wrong: one that overrides nothing."""
MOST_REPAIRS = 8


@dataclass
class StudyForm:
    """A study after the check of its form.

    Attributes:
        study: the contents, with replacements for wrong parts; None if too much is wrong.
        problems: the mistakes in the form.
        partial: the names of grids of which so much is replaced that their cells can't be checked.
    """

    study: StudyFile | None = None
    problems: list[Problem] = field(default_factory=list)
    partial: set[str] = field(default_factory=set)


def read_form(document: Document, directory: str) -> StudyForm:
    """Check the form of a study; replace what is wrong in `document`, and rename keys whose meaning is clear.

    `directory` has the modules of the user's own.
    """
    found = StudyForm()
    for _ in range(MOST_REPAIRS):
        try:
            found.study = StudyFile.model_validate(document.data)
            break
        except ValidationError as exc:
            mistakes = exc.errors(include_url=False)
            told = problems_of(mistakes, document, directory, FORM)
            found.problems += [each for each in told if each not in found.problems]
            if not isinstance(document.data, dict):
                break
            _repair(document, mistakes, directory, found)
    return found


def _repair(document: Document, mistakes: Sequence[ErrorDetails], directory: str, found: StudyForm) -> None:
    """Rename or remove unknown keys; if there are none, replace wrong parts. A missing key may be an unknown one."""
    paths = {written_path(each["loc"], document.data, each["type"]): each["type"] for each in mistakes}
    unknown = [path for path, kind in paths.items() if kind == "extra_forbidden"]
    for path in unknown:
        _rename(document, path, directory)
    for path in paths if not unknown else ():
        _replace(cast(dict[str, Any], document.data), path, found)


def _rename(document: Document, path: Path, directory: str) -> None:
    """Rename an unknown key to the most similar known one, with the places of keys below; remove it if none is near."""
    *above, key = path
    parent: Any = _at(document.data, tuple(above))
    value = parent.pop(key)
    meant = similar(key, keys_at(document.data, tuple(above), directory, StudyFile))
    if not meant or meant in parent:
        return
    parent[meant] = value
    for places in (document.keys, document.values):
        for old in [each for each in places if each[: len(path)] == path]:
            places[(*above, meant, *old[len(path) :])] = places[old]


def _replace(data: dict[str, Any], path: Path, found: StudyForm) -> None:
    """Replace the wrong or missing part at `path` by one without mistakes."""
    top, grid, key, *below = (*path, "", "", "")[: max(3, len(path))]
    if len(path) < 2:
        data[str(top)] = STAND_INS.get(str(top), "")
    elif len(path) == 2 and not isinstance(data["sweeps"][grid], dict):
        del data["sweeps"][grid]
    else:
        _replace_in_grid(data["sweeps"][grid], str(key), below)
        if key in ("scenario", "cases") or (key == "vary" and SOME in data["sweeps"][grid]["vary"].values()):
            found.partial.add(str(grid))


def _replace_in_grid(grid: dict[str, Any], key: str, below: list[str | int]) -> None:
    if key == "figures" and below:
        grid["figures"][below[0]] = dict(FIGURE)
    elif key == "vary" and below:
        values = grid["vary"][below[0]]
        grid["vary"][below[0]] = SOME if values is None or isinstance(values, list | dict) else [values]
    elif key == "vary":
        grid["vary"], grid["figures"] = {"": SOME}, []
    elif key in ("scenario", "cases"):
        grid[key] = {}
    else:
        grid.pop(key, None)


def _at(value: object, path: Path) -> object:
    for key in path:
        value = item(value, key)
    return value
