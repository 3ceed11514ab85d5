"""The scenarios of runs recorded by an earlier version, completed with that version's defaults."""

from __future__ import annotations

from pathlib import Path

from netdfl.links.spec import NODE_KEYS


def complete_recorded(file: Path, data: object) -> None:
    """Complete a recorded scenario with the defaults of the version that ran it; leave other files unchanged.

    A recorded scenario has every key of its version. In versions without the key `sharing`, the messages on a node's
    uplink or downlink were sent one after another.
    """
    if file.name != "scenario.yaml" or not (file.parent / "provenance.json").is_file() or not isinstance(data, dict):
        return
    links, events = data.get("links"), data.get("events")
    entries = [*(links.values() if isinstance(links, dict) else ()), *(events if isinstance(events, list) else ())]
    rules = [entry.get(key) for entry in entries if isinstance(entry, dict) for key in NODE_KEYS]
    for rule in rules:
        if isinstance(rule, dict) and rule.get("kind") == "serial":
            rule.setdefault("sharing", "fifo")
