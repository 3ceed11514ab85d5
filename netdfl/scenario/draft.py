"""A first scenario for `netdfl new`, as commented YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from netdfl.core.errors import Problem, ScenarioError
from netdfl.scenario.load import loads
from netdfl.scenario.model.schema import SCHEMA

_TEXT = """\
# {name}: {nodes} nodes, {algorithm} on {topology}. Look at it with `netdfl explain {file}`, run it with
# `netdfl run {file}`. `netdfl list` has everything that could stand here, `netdfl list keys` all keys.
schema: {schema}
name: {name}
seed: 0  # every random stream comes from it; another seed is another run
nodes: {nodes}  # each trains on its own data
rounds: {rounds}  # of each node, at its own pace
world: {world}  # or {others}
task:
  dataset: {{name: {dataset}, partition: {{kind: dirichlet, alpha: 0.3}}}}  # `netdfl list datasets`, \
`netdfl list partitions`
  model: {model}  # `netdfl list models`, or module:name of your own
  batch_size: 32
algorithm: {algorithm}  # `netdfl list algorithms`; parameters as {{name: {algorithm}, lr: 0.1}}
topology: {topology}  # `netdfl list topologies`
{links}# events:  # faults and changes, by time or round: `netdfl list events`
#   - {{round: 5, crash: 0, restart_after: 2s}}
expect:  # what makes the run a pass; `netdfl list expect`
  deadlock: none
"""
_WORLDS: Mapping[str, str] = {
    "simulated": "simulated (one process, repeatable)",
    "processes": "processes (real gRPC)",
    **{name: name for name in ("namespaces", "containers", "slurm", "ray")},
}
_LINKS = "links:  # `netdfl list links`; what is not said is perfect\n  default: {{{rules}}}\n"
_NO_LINKS = "# links:  # perfect links; make them worse like this (`netdfl list links`)\n"
_NO_LINKS += "#   default: {loss: 5%, latency: 20ms, rate: 10Mbit}\n"


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The settings of a first scenario for `netdfl new`.

    `loss`, `latency` and `rate` are rules of all links, written as in a scenario; an empty text means no rule.
    """

    name: str
    nodes: int = 8
    rounds: int = 20
    algorithm: str = "dfedavg"
    topology: str = "ring"
    dataset: str = "digits"
    model: str = "mlp"
    loss: str = ""
    latency: str = ""
    rate: str = ""
    world: str = "processes"

    def text(self, file: str) -> str:
        """Return the scenario's text with comments, for the file name `file`.

        Raises ScenarioError for a wrong setting.
        """
        rules = {key: getattr(self, key) for key in ("loss", "latency", "rate") if getattr(self, key)}
        written = ", ".join(f"{key}: {value}" for key, value in rules.items())
        links = _LINKS.format(rules=written) if rules else _NO_LINKS
        others = ", ".join(words for name, words in _WORLDS.items() if name != self.world)
        text = _aligned(_TEXT.format(file=file, schema=SCHEMA, links=links, others=others, **vars(self)))
        try:
            loads(text, file=file)
        except ScenarioError as error:
            raise ScenarioError([_without_line(each, text) for each in error.problems]) from None
        return text


def _without_line(problem: Problem, text: str) -> Problem:
    """Return the problem without its line number, because a file whose `text` has a mistake is not written."""
    line = text.splitlines()[problem.line - 1] if problem.line else ""
    remedy = "it is the file's name without its ending, so name the file otherwise"
    return replace(problem, line=0, column=0, remedy=remedy if line.startswith("name:") else problem.remedy)


def _aligned(text: str) -> str:
    """Align the comments at the ends of the lines of a text."""
    return re.sub(r"^(\S.*|  .*)  #", lambda found: f"{found[1]:<25} #", text, flags=re.MULTILINE)
