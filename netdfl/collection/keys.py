"""The keys of scenarios, such as `links.default.loss`, and those in which several scenarios differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice

NOT_GROUPED = ("seed", "name")
MOST_KEYS = 5000
Keys = Mapping[str, str]
"""Each key of a scenario with its value as text."""
SHORT: Mapping[str, Sequence[str]] = {
    "loss": ("probability", "model"),
    "latency": ("delay", "dist"),
    "rate": ("rate", "kind"),
    "uplink": ("rate", "kind"),
    "downlink": ("rate", "kind"),
    "compute": ("time", "kind"),
    "compression": ("kind",),
    "topology": ("kind",),
    "partition": ("kind",),
    "dataset": ("name",),
    "model": ("name",),
}
"""The inner keys that a scenario may leave out, by the key around them: `loss: 5%` is `loss: {probability: 5%}`."""
_KEY = re.compile(r"^(?=[^\s#])", re.MULTILINE)
_PLAIN_KEY = re.compile(r"[A-Za-z_]\w*:\s")
_JOINED = re.compile(r"[&*]")
"""Characters of YAML by which one part of a text can refer to another (anchors and aliases)."""


def scenario_keys(text: str) -> Keys:
    """Return the keys of a scenario, at most `MOST_KEYS`. Raises ScenarioError if it is no YAML.

    Scenarios of a folder have most of their parts in common, so each part is parsed once and cached.
    """
    parts = _KEY.split(text)
    whole = _JOINED.search(text) or not all(_PLAIN_KEY.match(part) for part in parts[1:])
    found = _flat(text) if whole else (pair for part in parts for pair in _flat(part))
    return dict(islice(found, MOST_KEYS))


@lru_cache(maxsize=8192)
def _flat(text: str) -> Sequence[tuple[str, str]]:
    from netdfl.scenario.loading.document import parse

    return tuple(islice(_walk(parse(text, "scenario.yaml").data, ""), MOST_KEYS))


def _walk(value: object, way: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _walk(inner, f"{way}.{key}" if way else str(key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, inner in enumerate(value):
            yield from _walk(inner, f"{way}[{place}]")
    elif value is not None or way:
        yield way, str(value)[:400]


def value_of(keys: Keys, key: str) -> str | None:
    """Return the value of `key`, or None. A key with a short form has the value of its inner key.

    So `links.default.loss` has the value `5%` of `links.default.loss.probability`.
    """
    parts = SHORT.get(key.rpartition(".")[2], ())
    return next((keys[name] for name in (key, *(f"{key}.{part}" for part in parts)) if name in keys), None)


def short_keys(keys: Iterable[str]) -> set[str]:
    """Return the keys, such as `loss`, whose short form can stand for one of `keys`, such as `loss.probability`."""
    parents = ((parent, part) for parent, _, part in (key.rpartition(".") for key in keys))
    return {parent for parent, part in parents if part in SHORT.get(parent.rpartition(".")[2], ())}


def differing(scenarios: Sequence[Keys], but: Sequence[str] = ()) -> list[str]:
    """Return the keys in which scenarios differ, in the order of the first that has them, without those in `but`."""
    keys = dict.fromkeys(key for each in scenarios for key in each if key not in but)
    return [key for key in keys if len({each.get(key) for each in scenarios}) > 1]


def group_names(scenarios: Mapping[str, Keys]) -> dict[str, str]:
    """Return a name for each run's group: runs whose scenarios differ only in the seed form a group.

    A name has only the keys that are needed to tell the groups apart.
    """
    differ = differing(list(scenarios.values()), NOT_GROUPED)

    def told_apart(by: Sequence[str]) -> int:
        return len({tuple(each.get(key) for key in by) for each in scenarios.values()})

    groups, needed = told_apart(differ), list(differ)
    for key in reversed(differ):
        fewer = [each for each in needed if each != key]
        needed = fewer if told_apart(fewer) == groups else needed
    return {run: _group_name(each, needed) for run, each in scenarios.items()}


def _group_name(scenario: Keys, keys: Sequence[str]) -> str:
    told = [f"{key}: {scenario[key]}" if key in scenario else f"no {key}" for key in keys]
    return ", ".join([scenario.get("name", ""), *told]).removeprefix(", ")
