"""The loading of scenarios: YAML, overrides, schema, checks. All mistakes are reported at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from netdfl.core.errors import Problem, ScenarioError
from netdfl.scenario.build import build_topology, used_links
from netdfl.scenario.checks.catalog import find_problems, find_problems_with_data
from netdfl.scenario.checks.compression import warnings
from netdfl.scenario.checks.graph import graph_notices
from netdfl.scenario.checks.links import events_can_be, sharing_notices
from netdfl.scenario.checks.survival import automatic, resent_too_late
from netdfl.scenario.checks.waiting import hardly_meant, waiting_notices, weights_stay_one
from netdfl.scenario.loading import overrides
from netdfl.scenario.loading.document import WHOLE_CHARACTER, Document, half_character, parse
from netdfl.scenario.loading.given import document_of, refuse_study
from netdfl.scenario.loading.normalize import normalize
from netdfl.scenario.loading.recorded import complete_recorded
from netdfl.scenario.loading.shipped import find_scenario
from netdfl.scenario.loading.validation import problems_of
from netdfl.scenario.model.plugins import failing_once
from netdfl.scenario.model.schema import SCHEMA, Scenario

_PLACED_BY = ("nodes", "seed", "algorithm", "groups", "links")
"""The keys of a scenario that place nodes on an underlay's sites and set their links."""
_STAND_INS = {
    "schema": SCHEMA,
    "name": "unnamed",
    "nodes": 2,
    "rounds": 1,
    "algorithm": {"name": "dfedavg"},
    "topology": {"kind": "ring"},
}


def load(
    scenario: str | Path | Mapping[str, object] | Scenario,
    sets: Sequence[str] = (),
    *,
    on: str | None = None,
    directory: str | Path = ".",
) -> Scenario:
    """Read, check and complete a scenario: a file, the name of a shipped one, or a mapping.

    Components that a user wrote are imported and tried: loading runs the modules that the scenario names. These modules
    lie beside its file, or in `directory` where the scenario is a mapping. Raises ScenarioError with every mistake.
    """
    if isinstance(scenario, Scenario):
        if sets or on is not None:
            what, remedy = "a scenario that is loaded is not changed", "give its file or mapping with the overrides"
            raise ScenarioError([Problem(what, "", remedy)])
        return scenario
    if not isinstance(scenario, str | Path | Mapping):
        what = f"{str(scenario)[:80]!r} is no scenario"
        raise ScenarioError([Problem(what, "expected a file's path, a mapping, or what netdfl.load gave")])
    file = None if isinstance(scenario, Mapping) else find_scenario(scenario)
    document = Document("scenario", _plain(scenario)) if file is None else document_of(file, str(scenario))
    refuse_study(document)
    if file is not None:
        complete_recorded(file, document.data)
    found = _read(document, sets, on, str(directory if file is None else file.parent))
    problems, notices = find_problems_with_data(found, document)
    if problems:
        raise ScenarioError(problems)
    found._notices += tuple(notices)
    found._file = file and file.resolve()
    return found


def _plain(value: object) -> object:
    """Convert a Python value to the form that YAML would have given: mappings with text keys, lists, paths as text."""
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    if isinstance(value, str) and (what := half_character(value)):
        raise ScenarioError([Problem(what, "", WHOLE_CHARACTER, "scenario")])
    return str(value) if isinstance(value, Path) else value


def loads(
    text: str | Mapping[str, object],
    sets: Sequence[str] = (),
    *,
    on: str | None = None,
    file: str = "scenario",
    directory: str | Path = ".",
) -> Scenario:
    """Read a scenario from YAML, or from the mapping to which it parses; its paths are relative to `directory`.

    Raises ScenarioError.
    """
    document = parse(text, file) if isinstance(text, str) else Document(file, _plain(text))
    return _read(document, sets, on, str(directory))


@failing_once()
def _read(document: Document, sets: Sequence[str], on: str | None, folder: str) -> Scenario:
    wanted = [overrides.parse_override(each) for each in sets]
    if on is not None:
        wanted.append(overrides.on_world(on, wanted))
    if not isinstance(document.data, dict):
        raise ScenarioError([document.problem((), "a scenario is a mapping", "expected `schema: netdfl/1` and so on")])
    normalize(document, folder)
    notices = overrides.apply(document, wanted, folder)
    problems: list[Problem] = []
    wrong: frozenset[str] = frozenset()
    try:
        scenario = Scenario.model_validate(document.data, context={"directory": folder})
    except ValidationError as exc:
        mistakes = exc.errors(include_url=False)
        problems = problems_of(mistakes, document, folder)
        wrong = frozenset(str(error["loc"][0]) for error in mistakes if error["loc"])
        scenario = _without(document.data, wrong, folder)
    scenario._folder = Path(folder).resolve()
    if scenario.underlay is not None:
        scenario, understood, found_wrong = _with_underlay(scenario, document, wrong)
        notices += understood
        problems += found_wrong
        wrong |= {"underlay"} if scenario.underlay is None else frozenset()
    problems += find_problems(scenario, document, wrong)
    if problems:
        raise ScenarioError(problems)
    if scenario.links_from is not None:
        scenario, understood = _with_links(scenario, document)
        notices += understood
    if scenario.delivery.kind == "auto":
        delivery, notice = automatic(scenario)
        scenario = scenario.model_copy(update={"delivery": delivery})
        notices += [notice] if notice else []
    found = (sharing_notices, graph_notices, hardly_meant, weights_stay_one, warnings, waiting_notices, resent_too_late)
    scenario._notices = tuple(dict.fromkeys([*notices, *(notice for each in found for notice in each(scenario))]))
    return scenario


def _with_underlay(
    scenario: Scenario, document: Document, wrong: frozenset[str]
) -> tuple[Scenario, list[str], list[Problem]]:
    """Return the scenario with its whole underlay (core links, sites of nodes) written out, notices, and mistakes.

    If there is a mistake, the returned scenario has no underlay.
    """
    from netdfl.scenario.measured.underlay_file import with_core_links, with_places

    without, part = scenario.model_copy(update={"underlay": None}), scenario.underlay
    assert part is not None
    try:
        key = "links" if part.file is None else "file"
        part, notices = with_core_links(part)
        if not wrong.isdisjoint(_PLACED_BY):
            return without, notices, []
        key = "place"
        return with_places(scenario, part), notices, []
    except (ValueError, OSError) as exc:
        return without, [], [document.problem(("underlay", key), str(exc))]


def _with_links(scenario: Scenario, document: Document) -> tuple[Scenario, list[str]]:
    """Return the scenario with link rules from its `links_from` file, and notices. Raises ScenarioError."""
    from netdfl.scenario.measured.apply import with_links

    try:
        scenario, notices = with_links(scenario, used_links(scenario, build_topology(scenario)))
    except ValueError as exc:
        raise ScenarioError([document.problem(("links_from", "file"), str(exc))]) from exc
    if problems := [document.problem(each.path, each.what) for each in events_can_be(scenario)]:
        raise ScenarioError(problems)
    return scenario, notices


def _without(data: dict[str, object], wrong: frozenset[str], directory: str) -> Scenario:
    """Return the scenario with placeholders for its wrong keys, so that the other keys can be checked as well."""
    left = {key: value for key, value in data.items() if key not in wrong}
    return Scenario.model_validate({**_STAND_INS, **left}, context={"directory": directory})
