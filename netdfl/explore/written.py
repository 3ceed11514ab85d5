"""A finding as a scenario file that anybody can run, with a sentence on what happens."""

from __future__ import annotations

from io import StringIO
from textwrap import fill
from typing import Any

from ruamel.yaml import YAML

from netdfl.explore.edits import Plain
from netdfl.explore.shrink import Shrunk
from netdfl.scenario.model.explore import Explore

_SHORT = {"algorithm": "name", "topology": "kind", "weights": "kind", "selection": "kind", "delivery": "kind"}
_SHORT_LINKS = {"latency": ("dist", "constant", "delay"), "loss": ("model", "bernoulli", "probability")}


def write_finding(shrunk: Shrunk, note: str = "") -> str:
    """The YAML of a shrunk finding, headed by what happens, and the hash by which its replay is known."""
    text = f"{shrunk.cause.text}{'' if shrunk.cause.text.endswith('.') else '.'}"
    lines = [fill(text, 116, initial_indent="# ", subsequent_indent="# ", break_long_words=False)]
    if note:
        lines.append(fill(note, 116, initial_indent="# ", subsequent_indent="# "))
    if shrunk.run.event_log_hash:
        lines.append(f"# Event log: {shrunk.run.event_log_hash}")
    return "\n".join([*lines, _yaml(_short(shrunk.plain))])


def _short(plain: Plain) -> Plain:
    """In the short forms that people write."""
    found = {key: _shortened(key, value) for key, value in plain.items()}
    for selector, rules in found.get("links", {}).items():
        found["links"][selector] = {key: _short_rule(key, value) for key, value in rules.items()}
    find = found.get("explore", {})
    if isinstance(find, dict):
        found.pop("explore", None)
        if "find" in find and find["find"] != Explore.model_fields["find"].default:
            found["explore"] = {"find": find["find"]}
    return {key: value for key, value in found.items() if value not in ({}, [])}


def _shortened(key: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {name: _shortened(name, each) for name, each in value.items()} if key != "links" else dict(value)
    return inner[_SHORT[key]] if key in _SHORT and list(inner) == [_SHORT[key]] else inner


def _short_rule(key: str, value: Any) -> Any:
    if key not in _SHORT_LINKS or not isinstance(value, dict):
        return value
    choice, default, short = _SHORT_LINKS[key]
    return value[short] if value.get(choice, default) == default and set(value) <= {choice, short} else value


def _yaml(plain: Plain) -> str:
    """Blocks at the top, one line for each thing below."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = None
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = 10**6
    out = StringIO()
    yaml.dump(plain, out)
    return out.getvalue()
