"""The conversion of pydantic's errors to reports with a place in the file, the expected value, and a remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from netdfl.core.errors import Problem
from netdfl.core.units import format_bytes, format_time, parse_size_bytes, parse_time_ns
from netdfl.scenario.loading.document import Document, Path
from netdfl.scenario.loading.normalize import keys_at
from netdfl.scenario.model.choices import nearest
from netdfl.scenario.model.schema import Scenario

MOST_MISTAKES = 1000
_EXAMPLES = {
    "schema": "netdfl/1",
    "name": "my-fleet",
    "nodes": "8",
    "rounds": "20",
    "algorithm": "dfedavg",
    "topology": "ring",
}
_TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list, like [1, 2]",
    "dict_type": "a mapping of keys and values",
    "model_type": "a mapping of keys and values",
    "model_attributes_type": "a mapping of keys and values",
    "string_pattern_mismatch": "at most 200 letters, digits, _, . and -, with a letter or digit first",
}


class FileForm(NamedTuple):
    """A kind of YAML file that users write, such as a scenario or a study.

    Attributes:
        what: the name of such a file in messages.
        model: the pydantic model of its contents.
        examples: an example of the value of each key, by path.
        listed: a sentence on where all keys are listed, which users see after an unknown key.
    """

    what: str
    model: type[BaseModel]
    examples: Mapping[str, str]
    listed: str = ""


SCENARIO = FileForm("the scenario", Scenario, _EXAMPLES)


def problems_of(
    mistakes: Sequence[ErrorDetails], document: Document, directory: str, form: FileForm = SCENARIO
) -> list[Problem]:
    """Return a report for the user for each of pydantic's `mistakes`; failed options of a union make one report.

    Mistakes beyond the first `MOST_MISTAKES` are left out, because each costs a search for the intended key.
    """
    found: dict[tuple[Path, str], Problem] = {}
    for details in mistakes[:MOST_MISTAKES]:
        path = written_path(details["loc"], document.data, details["type"])
        problem = _problem(details, path, document, directory, form)
        same = (path, problem.what)
        if before := found.get(same):
            expected = before.expected
            if problem.expected not in expected:
                expected = f"{expected} or {problem.expected.removeprefix('expected ')}"
            problem = Problem(before.what, expected, before.remedy, before.file, before.line, before.column)
        found[same] = problem
    return _each_once(found)


def _each_once(found: Mapping[tuple[Path, str], Problem]) -> list[Problem]:
    """Remove reports of missing keys where another report says that the key was misspelled."""
    meant = {(path[:-1], problem.remedy.partition("?")[0]) for (path, _), problem in found.items() if path}
    return [
        problem
        for (path, what), problem in found.items()
        if not (what.startswith("missing key ") and (path[:-1], f"did you mean {path[-1]!r}") in meant)
    ]


def written_path(loc: tuple[int | str, ...], value: object, kind: str) -> Path:
    """Return the keys of `loc`, the location of a pydantic error of type `kind`, that exist in the scenario `value`.

    The others are names that pydantic adds for unions.
    """
    path: list[int | str] = []
    for key in loc:
        try:
            value = value[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            if kind in ("missing", "extra_forbidden") and key == loc[-1]:
                path.append(key)
            continue
        path.append(key)
    return tuple(path)


def _problem(details: ErrorDetails, path: Path, document: Document, directory: str, form: FileForm) -> Problem:
    kind, value, context = details["type"], details["input"], details.get("ctx", {})
    name = ".".join(map(str, path)) or form.what
    if kind == "extra_forbidden":
        known = keys_at(document.data, path[:-1], directory, form.model)
        remedy = nearest(path[-1], known) if known else "remove it"
        if form.listed:
            remedy += f"{'' if remedy.endswith('?') else ';'} {form.listed}"
        return document.problem(path, f"unknown key {path[-1]!r}", _in(path[:-1]), remedy, key=True)
    if kind == "missing":
        remedy = f"add `{path[-1]}: {form.examples.get(name, '...')}`"
        return document.problem(path[:-1], f"missing key {path[-1]!r}", _in(path[:-1]), remedy)
    if kind == "refused":
        return document.problem(path, context["what"], _expected(context["expected"]), context["remedy"])
    if kind == "value_error":
        return document.problem(path, f"{name}: {context['error']}")
    if kind in ("literal_error", "enum"):
        return document.problem(
            path, f"{name} is {value!r}", _expected(context["expected"]), _near(value, context["expected"])
        )
    if kind == "too_short":
        return document.problem(path, f"{name} is {value!r}", _expected(f"a list of {context['min_length']} or more"))
    if kind.startswith(("greater_than", "less_than")):
        return document.problem(path, f"{name} is {value!r}", _expected(_bound(kind, context, value)))
    shown = f"{name} is empty" if value is None else f"{name} is {value!r}"
    return document.problem(path, shown, _expected(_TYPES.get(kind, details["msg"])), _quoted(kind, value))


def _quoted(kind: str, value: object) -> str:
    """Return the remedy if `value` is a number in quotes, or a mapping in place of a list; else an empty text.

    `kind` is the type of pydantic's error about `value`, such as `int_type` where it expects an integer.
    """
    if kind in ("int_type", "float_type") and isinstance(value, str):
        with suppress(ValueError):
            float(value)
            return "remove the quotes"
    if kind == "list_type" and isinstance(value, Mapping):
        return "begin each entry with `- `"
    return ""


def _near(value: object, expected: str) -> str:
    remedy = nearest(value, [word for word in expected.split("'") if word.isidentifier() and word != "or"])
    return remedy if remedy.startswith("did you mean") else ""


def _bound(kind: str, context: Mapping[str, float], value: object) -> str:
    sign, limit = {
        "greater_than": ("above", "gt"),
        "greater_than_equal": ("at least", "ge"),
        "less_than": ("below", "lt"),
        "less_than_equal": ("at most", "le"),
    }[kind]
    return f"{sign} {_in_units_of(value, context[limit])}"


def _in_units_of(value: object, limit: float) -> str:
    for parse, show in ((parse_time_ns, format_time), (parse_size_bytes, format_bytes)):
        with suppress(ValueError):
            parse(value)
            return show(int(limit))
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


def _expected(what: str) -> str:
    return f"expected {what}" if what else ""


def _in(path: Path) -> str:
    return f"in {'.'.join(map(str, path))}" if path else ""
