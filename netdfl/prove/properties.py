"""The properties that a proof checks under every schedule of faults, each judged by a single run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from netdfl.core.errors import InputError
from netdfl.diagnosis import words
from netdfl.explore.cause import PredicateError, find_predicates
from netdfl.explore.observed import lost_weight
from netdfl.prove.player import Play
from netdfl.scenario.build import is_push
from netdfl.scenario.model.schema import Scenario

TOLERANCE = 1e-9
"""How far the total push-sum weight may be off by rounding, as a share of the whole."""

Broken: TypeAlias = Callable[[Play], str]
"""A function that returns how a run violates a property, as text; empty if it does not."""


@dataclass(frozen=True)
class ProvenProperty:
    """A property that a run under every schedule of faults is to keep.

    Attributes:
        name: the property in words.
        broken: returns how a run breaks it; empty if the run keeps it.
        numeric: whether it depends on computed numbers, which may differ between symmetric schedules.
        reads_rows: whether it may depend on the whole record of a run.
    """

    name: str
    broken: Broken
    numeric: bool = False
    reads_rows: bool = False


def broken_by(play: Play, properties: Sequence[ProvenProperty]) -> tuple[str, str] | None:
    """Return the first property that `play`, a simulated run, violates, and how; None if it satisfies all."""
    if play.run.error is not None:
        return "no error", f"the run broke: {play.run.error!r}"
    for each in properties:
        if told := each.broken(play):
            return each.name, told
    return None


def choose_properties(
    scenario: Scenario, names: Sequence[str] = (), *, consensus: float | None = None
) -> list[ProvenProperty]:
    """Return the properties with these names, by default all that suit the method.

    Raises InputError for an unknown name.

    A name with a colon, `module:callable`, is a predicate of the user: it returns true, or a text, for a run that
    breaks the property. With `consensus`, the final consensus distance must be below that number.
    """
    known = {"stall": STALL, "finish": FINISH, "diverged": DIVERGED}
    if is_push(scenario):
        known["weight"] = weight_kept(float(scenario.num_nodes))
        if scenario.delivery.kind == "acknowledged":
            known["counted"] = weight_counted(float(scenario.num_nodes))
    chosen = []
    for name in names or known:
        if ":" in name:
            chosen.append(_predicate(scenario, name))
        elif name in known:
            chosen.append(known[name])
        else:
            raise InputError(_no_property(scenario, name))
    if consensus is not None:
        chosen.append(consensus_below(consensus))
    return chosen


def _no_property(scenario: Scenario, name: str) -> str:
    """Return the error message for a `name` that is not a property of `scenario`."""
    if name in ("weight", "counted") and not is_push(scenario):
        return f"--properties: {name} is a property of push-sum, and {scenario.algorithm.kind} has no weights"
    if name == "counted":
        return "--properties: counted is about delivery: acknowledged, whose record counts what was given up"
    return f"--properties: {name!r} is none; use stall, finish, diverged, weight, counted, or module:callable"


def _stalls(play: Play) -> str:
    held = play.end.left - play.end.idle
    return f"{words.nodes(sorted(held))} {'wait' if len(held) > 1 else 'waits'} for good" if held else ""


def _does_not_finish(play: Play) -> str:
    left = (play.end.left - play.end.idle) | play.end.died
    return f"{words.nodes(sorted(left))} {'do' if len(left) > 1 else 'does'} not finish" if left else ""


def _diverges(play: Play) -> str:
    rows = play.run.rows
    fell = any(event.kind == "not_finite" for event in rows.events)
    return "a vector is not finite" if fell or not all(isfinite(each.value) for each in rows.measured) else ""


STALL = ProvenProperty("no stall", _stalls)
FINISH = ProvenProperty("all that should finish do", _does_not_finish)
DIVERGED = ProvenProperty("no divergence", _diverges, numeric=True)


def weight_kept(num_nodes: float) -> ProvenProperty:
    """Return the property that the total push-sum weight of `num_nodes` nodes is conserved."""

    def lost(play: Play) -> str:
        weight = play.end.weight
        if weight is None or abs(weight - num_nodes) <= TOLERANCE * num_nodes:
            return ""
        how = "lost" if weight < num_nodes else "made"
        return f"push-sum weight was {how}: {weight:.6g} of {num_nodes:g} is held, under way or unacknowledged"

    return ProvenProperty("push-sum weight kept", lost, numeric=True)


def weight_counted(num_nodes: float) -> ProvenProperty:
    """Return the property that the record accounts for all push-sum weight that is missing."""

    def uncounted(play: Play) -> str:
        missing = 0.0 if play.end.weight is None else num_nodes - play.end.weight
        counted = lost_weight(play.run.rows)
        if abs(missing - counted) <= TOLERANCE * num_nodes:
            return ""
        return f"push-sum weight of {missing:.6g} is missing, and the record counts {counted:.6g}"

    return ProvenProperty("missing push-sum weight counted", uncounted, numeric=True)


def consensus_below(bound: float) -> ProvenProperty:
    """Return the property that the final consensus distance is below `bound`."""

    def apart(play: Play) -> str:
        told = [each for each in play.run.rows.measured if each.node is None and each.name == "consensus_distance"]
        if told and told[-1].value < bound:
            return ""
        return f"the consensus distance is {told[-1].value:.3g}" if told else "no consensus distance was measured"

    return ProvenProperty(f"consensus distance below {bound:g}", apart, numeric=True)


def _predicate(scenario: Scenario, name: str) -> ProvenProperty:
    (predicate,) = find_predicates(scenario, [name])

    def holds(play: Play) -> str:
        try:
            return predicate(play.run)
        except PredicateError as error:
            raise InputError(str(error)) from error

    return ProvenProperty(name, holds, numeric=True, reads_rows=True)
