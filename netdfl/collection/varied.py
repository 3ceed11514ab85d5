"""The keys in which runs differ: those that tell runs apart, and those that follow from another key's value."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from netdfl.collection.keys import SHORT, Keys, differing, scenario_keys


class VariedKeys(NamedTuple):
    """The keys in which runs differ.

    Attributes:
        telling: the keys that tell runs apart, those with the most values first.
        implied: the keys that follow from another key: those that a run has only if the other key has a certain value,
            such as the parameters of one algorithm, and parameters of algorithms that have their defaults everywhere.
    """

    telling: Sequence[str]
    implied: Sequence[str]


def varied(scenarios: Sequence[Keys], but: Sequence[str] = ()) -> VariedKeys:
    """Return the keys in which scenarios differ, except those in `but`.

    A key that follows from a key in `but` counts as implied, too.
    """
    differ = sorted(differing(scenarios), key=lambda key: not _is_short(key))
    told = {key: len({each[key] for each in scenarios if key in each}) for key in differ}

    def come_with(key: str, place: int) -> bool:
        others = (other for at, other in enumerate(differ) if at < place or told[other] > 1)
        return told[key] == 1 and any(_implies(other, key, scenarios) for other in others)

    implied = {key for place, key in enumerate(differ) if _are_defaults(key, scenarios) or come_with(key, place)}
    kept = [key for key in differing(scenarios) if key not in but]
    telling = sorted((key for key in kept if key not in implied), key=lambda key: -told[key])
    return VariedKeys(telling, [key for key in kept if key in implied])


def _is_short(key: str) -> bool:
    """Return whether a scenario may leave out the last part of `key`: `links.default.loss` for `loss.probability`."""
    part, _, last = key.rpartition(".")
    return SHORT.get(part.rpartition(".")[2], ("",))[0] == last


def _implies(other: str, key: str, scenarios: Sequence[Keys]) -> bool:
    """Return whether the value of the key `other` decides which scenarios have `key`.

    It can do so only for keys in the same part of the scenario, or in a part inside that.
    """
    part = other.rpartition(".")[0]
    if not part or not f"{key}.".startswith(f"{part}."):
        return False
    having = {each.get(other) for each in scenarios if key in each}
    return having.isdisjoint(each.get(other) for each in scenarios if key not in each)


def _are_defaults(key: str, scenarios: Sequence[Keys]) -> bool:
    if not key.startswith("algorithm.") or key == "algorithm.name":
        return False
    given = ((_defaults(each.get("algorithm.name", "")).get(key), each[key]) for each in scenarios if key in each)
    return all(default == value for default, value in given)


@cache
def _defaults(algorithm: str) -> Keys:
    """Return the defaults of an algorithm's keys; none for a user's own, as no module is imported to list runs."""
    from netdfl.scenario.explain.keys import written_default
    from netdfl.scenario.loading.resolved import plain_to_yaml
    from netdfl.scenario.model.algorithm import ALGORITHMS

    if algorithm not in ALGORITHMS.table():
        return {}
    model = ALGORITHMS.model(algorithm)
    given = [(name, field.alias or name) for name, field in model.model_fields.items() if not field.is_required()]
    plain = {written: written_default(model, name) for name, written in given if written != "name"}
    return scenario_keys(plain_to_yaml({"algorithm": plain}))
