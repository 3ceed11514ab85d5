"""The names that the plots of a study may use: metrics for `y`, and for `x` and `panels` names of varied values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from netdfl.core.errors import Problem
from netdfl.record.metric_names import OF_FLEET, OF_NODES, OF_RUN
from netdfl.scenario.model.choices import nearest
from netdfl.scenario.model.study import FigureSpec
from netdfl.scenario.model.task import METRICS
from netdfl.study.plan import CASE, GridPlan

_LAGGED = re.compile(r"(?P<metric>\w+)@\d+")
_JUDGED = re.compile(r"(?:test|personal|mean_local|mean_personal)_(?P<metric>\w+)")
_LAG = "like weight@1: that metric of the same node, a round before"
_ALIKE = 0.85
"""How alike two spellings of a varied name must be, as a ratio of `difflib`."""
_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]")


def figure_problems(plan: GridPlan, sets: Sequence[str] = (), misspelled: Sequence[str] = ()) -> list[Problem]:
    """Return a problem for each metric in the plots of `plan` that no run records, and each value that does not vary.

    Parts of a user's own, also in the overrides `sets`, may record metrics of any name; then all metrics are accepted.
    Names of varied values that are themselves `misspelled` are not proposed, and a plot may spell them correctly.
    """
    own = _has_own_parts(plan, sets)
    return [
        plan.problem(("figures", number, key), f"sweeps.{plan.name}.figures.{number}.{key}: {text}")
        for number, drawn in enumerate(plan.figures)
        for key, text in _wrong(_as_varied(drawn, plan, misspelled), _varied(plan), misspelled, own=own)
    ]


def _varied(plan: GridPlan) -> list[str]:
    """Return the names of what varies in `plan`: its cases, if they have names or can't be checked, and its values."""
    return [*([CASE] if any(plan.cases) or not plan.cases else []), *(name for name in plan.vary if name != CASE)]


def _as_varied(drawn: FigureSpec, plan: GridPlan, misspelled: Sequence[str]) -> FigureSpec:
    """Return the plot `drawn`; a varied name that only `plan` has `misspelled` gets the spelling of `plan`."""
    known = ("round", "bytes_sent", CASE, *plan.vary)
    unknown = {key: name for key, name in (("x", drawn.x), ("panels", drawn.panels)) if name not in known}
    near = {key: difflib.get_close_matches(name, misspelled, 1, _ALIKE) for key, name in unknown.items()}
    return drawn.model_copy(update={key: found[0] for key, found in near.items() if found})


def _wrong(drawn: FigureSpec, varied: list[str], misspelled: Sequence[str], *, own: bool) -> Iterator[tuple[str, str]]:
    """Yield each error in the specification of a plot: its key, and a text with value, remedy, and permitted values.

    `varied` has the names of varied values; those that are `misspelled` are not proposed. With `own`, metrics may have
    any name.
    """
    proposed = [name for name in varied if name not in misspelled]
    lagged = _LAGGED.fullmatch(drawn.x)
    if lagged is None and drawn.x not in ("round", "bytes_sent", *varied):
        remedy = _remedy(drawn.x, ["round", "bytes_sent", *proposed])
        yield "x", f"{drawn.x!r} is not varied here: {remedy}; or NAME@1, {_LAG}"
    known = _metrics(drawn.x, varied)
    for key, name in (("y", drawn.y), ("x", lagged["metric"] if lagged else drawn.y)):
        if not (own or name in known or _is_judged(name)) and (key == "y" or lagged):
            yield key, f"there is no metric {name!r} by {drawn.x}: {_remedy(name, known)}"
    if drawn.panels:
        yield from _wrong_panels(drawn, varied, proposed)


def _wrong_panels(drawn: FigureSpec, varied: list[str], proposed: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each error in the panels of a plot; only a plot against a varied value can have panels.

    `varied` has the names of varied values, and `proposed` the correctly spelled ones of these.
    """
    panels = [name for name in varied if name != drawn.x]
    if drawn.panels in varied and drawn.x not in varied:
        yield "panels", f"a figure by {drawn.x} has none: leave them out, or draw it by one of {', '.join(proposed)}"
    elif drawn.panels not in panels:
        others = [name for name in panels if name in proposed]
        remedy = _remedy(drawn.panels, others) if others else "leave them out"
        yield "panels", f"nothing else varies as {drawn.panels!r}: {remedy}"


def _remedy(name: str, known: list[str]) -> str:
    """Return advice on a wrong name: the nearest of the `known` names or, if none is near, all of them."""
    told = nearest(name, known)
    return told if told.startswith("use") else f"{told} There are {', '.join(sorted(known))}"


def _metrics(x: str, varied: list[str]) -> list[str]:
    """Return the names of metrics that can be drawn against `x`; all names for an `x` that is itself wrong."""
    known = set(OF_FLEET)
    if x not in ("round", "bytes_sent") and "@" not in x:
        known |= set(OF_RUN)
    if x not in ("bytes_sent", *varied):
        known |= set(OF_NODES)
    return sorted(known)


def _is_judged(name: str) -> bool:
    """Return whether `name` is a metric of evaluated models, such as `test_mae`."""
    found = _JUDGED.fullmatch(name)
    return found is not None and found["metric"] in ("loss", *METRICS.names())


def _has_own_parts(plan: GridPlan, sets: Sequence[str]) -> bool:
    """Return whether a run of `plan` may use code of a user's own as part of a scenario, `package.module:callable`."""
    varied = [override for values in plan.vary.values() for each in values.values() for override in each]
    cases = [override for each in plan.cases.values() for override in each]
    return any(map(_OWN.search, [plan.scenario.read_text(encoding="utf-8"), *cases, *varied, *sets]))
