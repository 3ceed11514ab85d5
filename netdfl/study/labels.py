"""Words of tables and plots for varied keys and values. A mapping is named by the keys in which it differs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from netdfl.core.errors import InputError
from netdfl.scenario.loading.document import parse
from netdfl.study.merged import written
from netdfl.study.plan import Values

Labels = Mapping[tuple[str, str], str]
"""Short texts of varied values, by path and whole text."""
_SHARE = re.compile(r"0|0?\.\d+|0\.|1(\.0*)?")
_KEYS = {
    "algorithm.lr": "learning rate",
    "links.default.loss": "message loss",
    "links.default.latency": "latency of links",
    "links.default.rate": "rate of links",
}


def heading_of(path: str) -> str:
    """Return the heading of a column of varied values: their `path` without a final `.name` or `.kind`."""
    return path.removesuffix(".name").removesuffix(".kind")


def key_words(path: str, paths: Sequence[str] = ()) -> str:
    """Return a varied key in words: the end of its path, or all of it if another of `paths` ends alike."""
    if path in _KEYS:
        return _KEYS[path]
    end = end_of(path)
    told = end if sum(end_of(each) == end for each in paths) < 2 else heading_of(path).replace(".", " ")
    return told.replace("_", " ")


def labels_of(values: Iterable[Values]) -> Labels:
    """Return labels for the values of a grid that are mappings, such as `{name: dfedsam, rho: 0.1}`: what differs.

    Shares beside percentages are in percent. `values` has the varied values of each point of the grid. The labels of a
    key's values are all different.
    """
    texts: dict[str, dict[str, None]] = {}
    for point in values:
        for path, text in point:
            texts.setdefault(path, {})[text] = None
    return {(path, text): label for path, each in texts.items() for text, label in _labels(list(each)).items()}


def shortened(values: Values, labels: Labels) -> Values:
    """Return the values of a point with their labels in place of long texts."""
    return tuple((path, labels.get((path, text), text)) for path, text in values)


def _labels(texts: Sequence[str]) -> dict[str, str]:
    """Return a label for each of a key's values where one is a mapping or a percentage.

    The result is empty if labels would not tell the values apart.
    """
    if not any(text.startswith("{") for text in texts):
        return _percentages(texts)
    known = {text: dict(_leaves(_value(text))) for text in texts}
    names = [each.get("") for each in known.values()]
    found = {text: _label(each, list(known.values()), named=len(set(names)) > 1) for text, each in known.items()}
    return found if len(set(found.values()) - {""}) == len(texts) else {}


def _percentages(texts: Sequence[str]) -> dict[str, str]:
    """Return labels in percent for a key's shares if one of its values is in percent: `0` beside `10%` is `0%`."""
    if not any(text.endswith("%") for text in texts):
        return {}
    found = {text: f"{100 * float(text):g}%" if _SHARE.fullmatch(text) else text for text in texts}
    return found if len(set(found.values())) == len(texts) else {}


def _value(text: str) -> object:
    with suppress(InputError):
        return parse(text, "--vary").data
    return text


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the parts of a value as text, by path; the name or kind of a part has the path of the part."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, path if key in ("name", "kind") else f"{path}.{key}")
    else:
        yield path, written(value)


def _label(own: Mapping[str, str], all_values: Sequence[Mapping[str, str]], *, named: bool) -> str:
    """Return the name of a value, if names differ, and the keys in which it differs from values of the same name."""
    alike = [each for each in all_values if each.get("") == own.get("")]
    differing = [path for path in own if path and len({each.get(path) for each in alike}) > 1]
    name = [own[""]] if "" in own and (named or not differing) else []
    ends = [end_of(path) for path in differing]
    keys = [end if ends.count(end) == 1 else path[1:] for end, path in zip(ends, differing, strict=True)]
    return ", ".join([*name, *(f"{key}={own[path]}" for key, path in zip(keys, differing, strict=True))])


def end_of(path: str) -> str:
    """Return the last key of a varied `path`, without a final `.name` or `.kind`."""
    return heading_of(path).rpartition(".")[2]
