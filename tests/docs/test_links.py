"""Every example of docs/links.md runs, and no rule, action or key of a schedule is without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import netdfl
from netdfl.links.rules.state import STATES
from netdfl.links.schedule.compile import ACTIONS
from netdfl.links.schedule.when import KEYS
from netdfl.links.spec import LINK_KEYS, NODE_KEYS, SLOTS
from netdfl.record.judge import WELL
from netdfl.scenario.load import loads

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "links.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?([\w.]*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
BASE = next(body for kind, name, body in BLOCKS if name == "base")
FILES = {name: body for kind, name, body in BLOCKS if kind in ("csv", "text")}
EXAMPLES = [(name or "simulated", body) for kind, name, body in BLOCKS if kind == "yaml" and name != "base"]
ALIKE = ("shared_from: null", "kind: heartbeat", "fidelity: {relative")
"""Examples in processes for the soak: they take their time; heartbeats are simulated beside that, and the bound on how
true links are has tests of its own."""
HEARD = next(body for _, body in EXAMPLES if ALIKE[1] in body)


@pytest.mark.parametrize(
    ("world", "example"),
    [
        *(
            pytest.param(*each, marks=[pytest.mark.soak] * any(words in each[1] for words in ALIKE))
            for each in EXAMPLES
        ),
        ("simulated", HEARD),
    ],
    ids=[*(body.split("\n")[0][:60] for _, body in EXAMPLES), "heartbeats, simulated"],
)
def test_the_example_runs(world: str, example: str, tmp_path: Path) -> None:
    for name, body in FILES.items():
        (tmp_path / name).write_text(body)
    own = {line.split(":")[0] for line in example.splitlines() if re.match(r"\w", line)}
    base = "".join(line for line in BASE.splitlines(keepends=True) if line.split(":")[0] not in own)
    sets = () if world == "simulated" else ("world.fidelity={relative: 100, slack: 100s}",)  # on a busy machine, too
    scenario = loads(base + example, sets, on=world, directory=tmp_path)
    finished = netdfl.run(scenario, out=tmp_path / "run", page=False)
    assert finished.result["verdict"] in WELL, finished.result["reasons"]
    assert finished.result["messages"]["delivered"] > 100


def mentioned(name: str) -> bool:
    return any(re.search(rf"\b{name}\b", body) for _, body in EXAMPLES)


def test_no_rule_is_without_an_example() -> None:
    short = {"bernoulli", "constant", "serial", "keyed"}
    names = {name for slot in SLOTS.values() for name in slot.table} - short
    wanted = names | set(ACTIONS) | set(LINK_KEYS) | set(NODE_KEYS) | set(KEYS.values())
    assert sorted(name for name in wanted if not mentioned(name)) == []
    assert [state for state in STATES[1:] if state not in TEXT] == []
