"""A scenario with every default filled in, as plain values or as YAML."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO

from ruamel.yaml import YAML

from netdfl.scenario.model.schema import Scenario


def to_plain(scenario: Scenario) -> dict[str, object]:
    """Return every key with its value, including defaults, in the form of a scenario file."""
    return scenario.model_dump(mode="json", by_alias=True)


def to_yaml(scenario: Scenario) -> str:
    """Return the scenario as a YAML file that loads to the same scenario."""
    return plain_to_yaml(to_plain(scenario))


def plain_to_yaml(plain: Mapping[str, object]) -> str:
    """Format plain values as YAML: a block at the top level, one line for each entry below."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 10**6
    out = StringIO()
    yaml.dump(plain, out)
    return out.getvalue()
