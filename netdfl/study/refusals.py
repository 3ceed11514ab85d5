"""The refusal of varied values with which no run of a grid is valid, and advice on keys that only some parts have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from netdfl.core.errors import InputError, Problem
from netdfl.scenario.load import load
from netdfl.study.cells import CellResult
from netdfl.study.plan import Cell

MOST_FORMS = 8
"""The most parts of a scenario that an error message writes out in full."""
_UNKNOWN = re.compile(r"--(?:set|vary) (?P<override>(?P<part>[\w.]+)\.(?P<key>\w+)(?:=.*?)?): unknown key ")
_WORD = re.compile(r'"(?!(?:true|false|null)")([A-Za-z_]\w*)"')
Refused = Mapping[Cell, str]


def check_values(looked: Sequence[CellResult], cells: Sequence[Cell], scenario: Path) -> None:
    """Raise InputError if a case, or a varied value, is refused in all of its `cells`, as that must be a mistake.

    A value that is refused in only some of its cells conflicts with another value; those cells count as failed.
    `looked` has the results of the cells that have run or were refused.
    """
    wrong, advice = _refused_values(looked, cells, scenario)
    if wrong:
        told = [f"{', '.join(values)} can't be run: {text}" for text, values in wrong.items()]
        raise InputError("\n".join(["no cell was run, as some never can be:", *told, *advice]))


def refused_problems(
    looked: Sequence[CellResult], cells: Sequence[Cell], scenario: Path
) -> tuple[list[Problem], list[str]]:
    """Return the mistakes for which cases and varied values are refused in all of their `cells`, and advice on them.

    A mistake without a place in a file names these cases and values.
    """
    of_text = {ran.text: ran.problems for ran in looked if ran.refused}
    wrong, advice = _refused_values(looked, cells, scenario)
    problems = [
        each if each.line else Problem(f"{', '.join(values)} can't be run: {each}")
        for text, values in wrong.items()
        for each in of_text[text]
    ]
    return problems, advice


def _refused_values(
    looked: Sequence[CellResult], cells: Sequence[Cell], scenario: Path
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the cases and values that are refused in all of their `cells`, by the text of the refusal, and advice."""
    refused = {ran.cell: ran.text for ran in looked if ran.refused}
    of_value: dict[str, list[Cell]] = {}
    for cell in cells if refused else ():
        for value in filter(None, [cell.case, *(f"{path}={value}" for path, value in cell.values)]):
            of_value.setdefault(value, []).append(cell)
    wrong: dict[str, list[str]] = {}
    for value, those in of_value.items():
        if all(cell in refused for cell in those):
            wrong.setdefault(refused[those[0]], []).append(value)
    advice = dict.fromkeys(_remedy(text, cells, refused, scenario) for text in wrong)
    return wrong, [each for each in advice if each]


class _Foreign(NamedTuple):
    """A key that not every varied part of a scenario has, such as `rho`, which only some algorithms have.

    Attributes:
        override: the override that sets it: `algorithm.rho=0.1`.
        part: the part: `algorithm`.
        key: the key: `rho`.
    """

    override: str
    part: str
    key: str


def _remedy(text: str, cells: Sequence[Cell], refused: Refused, scenario: Path) -> str:
    """Return advice on how to set a key only for those algorithms or other parts of a scenario that have it.

    The advice is empty if no part has the key. `text` is the error message that refuses it in the cells `refused`.
    """
    match = _UNKNOWN.match(text)
    able = [cell for cell in cells if cell not in refused]
    if match is None or not able:
        return ""
    found = _Foreign(match["override"], match["part"], match["key"])
    varied = next((path for path, _ in cells[0].values if path in _choices(found.part)), "")
    if varied:
        having = " and ".join(dict.fromkeys(dict(cell.values)[varied] for cell in able))
        return _in_one(found, having, cells, refused, scenario)
    having = ", ".join(dict.fromkeys(cell.case for cell in able if cell.case))
    return f"leave it out of --set, and write it in the study for the cases that have it: {having}" if having else ""


def _choices(part: str) -> Sequence[str]:
    return (part, f"{part}.name", f"{part}.kind")


def _in_one(found: _Foreign, having: str, cells: Sequence[Cell], refused: Refused, scenario: Path) -> str:
    told = f"of these, {having} {'have' if ' and ' in having else 'has'} {found.key!r}"
    below = [path for path, _ in cells[0].values if path in _choices(found.part) or path.startswith(f"{found.part}.")]
    inner: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        inner.setdefault(tuple(dict(cell.values)[path] for path in below), cell)
    forms: dict[str, None] = {}
    with suppress(InputError):
        forms = dict.fromkeys(_form(cell, found, cell in refused, scenario) for cell in inner.values())
    if not 0 < len(forms) <= MOST_FORMS:
        return told
    options = [f"--vary {path}" for path in below]
    options += [] if f"{found.part}.{found.key}" in below else [f"--set {found.override}"]
    in_place = " and ".join(options)
    return f"{told}; give each its own keys, in place of {in_place}:\n--vary '{found.part}={','.join(forms)}'"


def _form(cell: Cell, found: _Foreign, without: bool, scenario: Path) -> str:
    """Return the keys of the part `found.part` of a cell's scenario, as file and overrides set them, in a line of YAML.

    `without` leaves out the key `found.key`.
    """
    key = f"{found.part}.{found.key}="
    named: object = load(scenario, [each for each in cell.sets if not (without and each.startswith(key))])
    for name in found.part.split("."):
        named = getattr(named, name, None)
    if not isinstance(named, BaseModel):
        raise InputError(f"{found.part} is no part with keys")
    plain = named.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    return _WORD.sub(r"\1", json.dumps(plain))
