"""Each key of a scenario that a sentence of README or docs shows with its value, `wait: {for: any}`, is understood."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from documented_commands import PAGES, ROOT
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import Scenario

SCENARIO = {
    "schema": "netdfl/1",
    "name": "shown",
    "nodes": 8,
    "rounds": 20,
    "task": {"dataset": "digits", "model": "mlp"},
    "algorithm": {"name": "dpsgd"},
    "topology": {"kind": "ring"},
    "world": {"kind": "simulated"},
}
ACKNOWLEDGED: Mapping[str, Any] = {"delivery": "acknowledged"}
GROUPS: Mapping[str, Any] = {"groups": {"paris": [0, 1], "zurich": [2, 3]}}
WITH: Mapping[str, Mapping[str, Any]] = {
    "algorithm: fedavg": {"topology": {"kind": "star"}},
    "topology: star": {"algorithm": {"name": "fedavg"}},
    "wait: {on_missing: undo}": ACKNOWLEDGED,
    "links: {paris--zurich: {rate: 5Mbit, loss: 1%}}": GROUPS,
}
"""What else a scenario needs to have."""
NOT_WHOLE = {
    "links: {paris--zurich: {queue: 64kB}}": "a core link of an underlay that the sentence names",
    "topology: {kind: edge_list, file: edges.csv}": "a file of the reader",
    'world: {kind: "my_package.my_module:ENTRY"}': "a module of the reader",
    'task: {kind: "labels:Signs"}': "a module that the page writes",
}
NUMBER = re.compile(r"\b[ks]\b(?=\})")
"""A letter that stands for a whole number: `{quorum: k}`."""


class Shown(NamedTuple):
    """Keys of a scenario in a sentence: the page, the text, and the keys."""

    page: str
    text: str
    keys: Mapping[str, Any]


def shown() -> Iterator[Shown]:
    """Yield what the sentences of all pages show."""
    yaml = YAML(typ="safe")
    for page in PAGES:
        sentences = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for text in sorted(set(re.findall(r"(?<!`)`([^`\n]+: [^`\n]+)`(?!`)", sentences))):
            try:
                keys = yaml.load(NUMBER.sub("2", text))
            except YAMLError:
                continue
            if isinstance(keys, dict) and set(keys) <= set(Scenario.model_fields) and "..." not in text:
                yield Shown(str(page.relative_to(ROOT)), text, keys)


def merged(whole: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `whole` with `more`, a level deep, unless that names its part anew."""
    renamed = {"kind", "name"}
    return dict(whole) | {
        key: {**whole[key], **value}
        if isinstance(value, dict) and isinstance(whole.get(key), dict) and not renamed & set(value)
        else value
        for key, value in more.items()
    }


@pytest.mark.parametrize("each", list(shown()), ids=lambda each: f"{each.page}: {each.text}")
def test_a_shown_key_is_understood(each: Shown) -> None:
    if each.text not in NOT_WHOLE:
        loads(json.dumps(merged(merged(SCENARIO, WITH.get(each.text, {})), each.keys)))


def test_no_exception_outlives_its_sentence() -> None:
    assert {*WITH, *NOT_WHOLE} <= {each.text for each in shown()}
