"""A user's own part is held to its contract when the scenario is loaded: at its key, with its place, and a remedy."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import InputError, ScenarioError
from netdfl.scenario.explain.keys import CATALOGUE
from netdfl.scenario.load import load
from netdfl.scenario.model.choices import Choices
from netdfl.scenario.model.contracts import CONTRACTS
from netdfl.scenario.model.links import link_choices
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.plugins import find_own
from netdfl.scenario.model.world import COMPUTE
from tests.scenario.scenarios_of_parts import definition, refused, written

CHOICES: dict[str, Choices] = {choices.what: choices for choices in (*CATALOGUE.values(), COMPUTE)} | {
    name: link_choices(name) for name in ("rate", "uplink", "downlink", "duplicate", "corrupt", "reorder")
}


@pytest.mark.parametrize("what", sorted(CONTRACTS))
def test_a_callable_of_another_kind_is_refused(tmp_path: Path, what: str) -> None:
    said = refused(tmp_path, what, "def mine(one, two, three, four, /): ...\n")
    assert "can't be used: it takes one, two, three, four before `/`" in said
    assert CONTRACTS[what].signature("mine") in said


@pytest.mark.parametrize("what", sorted(CONTRACTS))
@pytest.mark.parametrize(
    ("raised", "told"), [("raise KeyError('gone')", "KeyError: 'gone'"), ("len(7)", "TypeError: ")]
)
def test_an_exception_inside_a_part_is_named_with_its_place(tmp_path: Path, what: str, raised: str, told: str) -> None:
    said = refused(tmp_path, what, definition(what, raised))
    assert f"the {what} 'parts:mine' raised {told}" in said
    assert said.endswith(f" ({tmp_path / 'parts.py'}:3)")


def test_a_call_that_does_not_fit_a_part_is_answered_by_the_signature(tmp_path: Path) -> None:
    said = refused(tmp_path, "topology", "import functools\nmine = functools.partial(print, 1, nothing=4)\n")
    assert "write it as def mine(num_nodes, streams, /, *, ...)" in said


LACKING = """
from netdfl.extend import AggregationWrapper, AnySgd, Averaging, Entry, RowMixing, Stateless, gossip, local_sgd, server


class Bare:
    def init(self, x, view):
        return ()


class Served(AggregationWrapper):
    pass


def solved(exchange, /):
    return gossip(exchange, Bare())


def mixed(exchange, /, *, sgd: AnySgd = AnySgd()):
    return gossip(exchange, local_sgd(sgd), mixing=type("Mixed", (Stateless, RowMixing), {})())


def started(exchange, /, *, sgd: AnySgd = AnySgd()):
    return gossip(exchange, local_sgd(sgd), start=Bare())


def wrapped(exchange, /, *, sgd: AnySgd = AnySgd()):
    return server(exchange, local_sgd(sgd), Served(inner=Averaging()))


served = Entry(build=wrapped, family="server", needs=frozenset({"server"}), source="own")
"""
OWN_METHOD = """

from netdfl.extend import AnySgd, gossip, local_sgd


def method(exchange, /, *, sgd: AnySgd = AnySgd()):
    return gossip(exchange, local_sgd(sgd))
"""
FORWARD = """
from torch import nn


class mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.norm = nn.BatchNorm1d(10)

    def forward(self, x):
        if self.training is {training}:
            x = {slip}
        return self.norm(self.last(x.flatten(1)))
"""


@pytest.mark.parametrize("slip", ["x.nothing", "{}['gone']", "len(7)", "x[:, :, :3]", "nowhere"])
@pytest.mark.parametrize("training", [True, False])
def test_a_mistake_in_forward_is_found_when_loading(tmp_path: Path, slip: str, training: bool) -> None:
    said = refused(tmp_path, "model", FORWARD.format(slip=slip, training=training))
    assert f"({tmp_path / 'parts.py'}:{14 if slip == 'x[:, :, :3]' else 13})" in said
    assert "write it as" not in said


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("solved", "made an algorithm whose local, Bare, lacks train, after_mix"),
        ("mixed", "made an algorithm whose mixing, Mixed, lacks outgoing, mix"),
        ("started", "made an algorithm whose start, Bare, lacks begin, trained"),
        ("served", "made an algorithm whose mixing, Served, lacks init_server, broadcast, aggregate"),
    ],
)
def test_an_algorithm_whose_parts_lack_a_method_is_refused(tmp_path: Path, method: str, said: str) -> None:
    file = written(tmp_path, "algorithm", LACKING)
    text = file.read_text().replace("parts:mine", f"parts:{method}")
    file.write_text(text.replace("topology: ring", "topology: star") if method == "served" else text)
    with pytest.raises(ScenarioError, match=said) as caught:
        load(file)
    assert [problem.line for problem in caught.value.problems] == [5]


@pytest.mark.parametrize("what", ["topology", "weights", "selection"])
def test_a_mistake_in_the_graph_is_told_once_beside_an_algorithm_of_ones_own(tmp_path: Path, what: str) -> None:
    file = written(tmp_path, what, definition(what, "return {}['gone']") + OWN_METHOD)
    file.write_text(file.read_text().replace("dfedavg", '"parts:method"'))
    with pytest.raises(ScenarioError) as caught:
        load(file)
    assert [problem.line for problem in caught.value.problems] == [6]


@pytest.mark.parametrize("what", sorted(CONTRACTS))
def test_another_type_is_refused(tmp_path: Path, what: str) -> None:
    said = refused(tmp_path, what, definition(what, "return 7j"))
    assert f"returned complex, expected {CONTRACTS[what].result} ({tmp_path / 'parts.py'}:2)" in said


@pytest.mark.parametrize("what", sorted(CONTRACTS))
def test_what_netdfl_has_itself_keeps_the_contract(what: str) -> None:
    for name, entry in CHOICES[what].table().items():
        function: Any = getattr(entry, "build", entry)
        if (what, name) == ("task", "train"):  # it has keys, and no function
            continue
        parameters = inspect.signature(function).parameters.values()
        context = [p.name for p in parameters if p.kind is p.POSITIONAL_ONLY]
        assert len(context) == len(CONTRACTS[what].context), name
        assert issubclass(CHOICES[what].model(name), Part)


def test_a_part_that_refuses_its_parameters_says_the_remedy_itself(tmp_path: Path) -> None:
    said = refused(tmp_path, "topology", definition("topology", "raise ValueError('k = 9 is too much; use 3')"))
    assert "raised ValueError: k = 9 is too much; use 3 (" in said
    assert "write it as" not in said


def test_context_that_does_not_end_with_a_slash_is_explained(tmp_path: Path) -> None:
    said = refused(tmp_path, "topology", "def mine(num_nodes, streams): ...\n")
    assert "it takes no arguments before `/`, and netdfl gives num_nodes, streams" in said
    assert "def mine(num_nodes, streams, /, *, ...) -> Topology: context ends with `/`" in said


NET = "return nn.Sequential(nn.Flatten(), nn.Linear(64, {}))"


@pytest.mark.parametrize(
    ("what", "body", "said"),
    [
        ("model", NET.format(3), "gives outputs of shape (2, 3) for 2 inputs and 10 classes, expected (2, 10)"),
        (
            "model",
            NET.replace("64", "63").format(10),
            "does not take the data, inputs of float32 (2, 1, 8, 8)",
        ),
        ("model", NET.format(10) + ".requires_grad_(False)", "has no parameter that is trained"),
        ("partition", "return [labels[:0]] * num_clients", "gave client 0 no list of sample numbers"),
        ("partition", "return [[0]]", "made 1 parts for 4 clients"),
        ("partition", "return [[len(labels)]] * num_clients", "a sample that is not among the"),
        ("augmentation", "return x[:1]", "made (1, 1, 8, 8) of a batch of shape (2, 1, 8, 8)"),
        ("topology", "return ring(3, streams)", "made a graph of 3 nodes and was given 4"),
        ("selection", "return Everybody()", "selected (7,) among (1, 2, 3)"),
        ("loss", "return Everybody()", "raised AttributeError with a message: 'Transit' object has no attribute 'no'"),
        ("compression", "return Everybody()", "raised AttributeError with a vector of "),
        ("compute time", "return lambda node, round: -1", "gave -1 as nanoseconds of node 0 in round 0"),
        ("algorithm", "return fedavg(exchange)", "made an algorithm of the family 'server'"),
    ],
)
def test_what_it_returns_is_used_once(tmp_path: Path, what: str, body: str, said: str) -> None:
    program = """
import torch
from torch import nn
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.topology.static import ring
fedavg = ALGORITHMS["fedavg"].build
class Everybody:
    receivers_know = unbiased = True
    def select(self, node, round, candidates): return (7,)
    def lost(self, unit): return unit.no
    def compress(self, x, rng): return x.no
    def decompress(self, encoded): return None
    def contraction(self, dim): return 1.0
    variance = contraction
"""
    assert said in refused(tmp_path, what, program + definition(what, body))


GOOD = {
    "topology": "return TOPOLOGIES['ring'](num_nodes, streams)",
    "weights": "return WEIGHTS['uniform'](graph)",
    "model": "return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))",
    "partition": "return [list(range(k, len(labels), num_clients)) for k in range(num_clients)]",
    "compression": "return COMPRESSORS['qsgd']()",
    "algorithm": "return ALGORITHMS['dfedavg'].build(exchange)",
    "latency": "return Delay(fifo=True, constant_ns=5)",
}


@pytest.mark.parametrize("what", sorted(GOOD))
def test_a_part_that_keeps_its_contract_is_taken(tmp_path: Path, what: str) -> None:
    program = """
import torch
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.compression.catalog import COMPRESSORS
from netdfl.links.rules.latency import Delay
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
"""
    load(written(tmp_path, what, program + definition(what, GOOD[what])))


CALLABLES = """
from __future__ import annotations
import functools
from torch import nn
from netdfl.core.units import PositiveInt
class Net(nn.Module):
    def __init__(self, shape, num_classes, /, *, width: PositiveInt = 4):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Linear(width, num_classes))
    def forward(self, x): return self.layers(x)
class Maker:
    def __call__(self, shape, num_classes, /, *, width: PositiveInt = 4): return Net(shape, num_classes, width=width)
"""


@pytest.mark.parametrize("program", ["mine = Net", "mine = functools.partial(Net, width=8)", "mine = Maker()"])
def test_a_part_may_be_anything_that_is_called(tmp_path: Path, program: str) -> None:
    file = written(tmp_path, "model", CALLABLES + program)
    assert load(file, ["task.model.width=7"]).task.model.params == {"width": 7}  # type: ignore[attr-defined]
    with pytest.raises(ScenarioError, match="width is 0, expected at least 1"):
        load(file, ["task.model.width=0"])


@pytest.mark.parametrize(
    ("last", "noticed"), [("nn.Softmax(1)", True), ("nn.LogSoftmax(1)", False), ("nn.Sigmoid()", False)]
)
def test_a_softmax_before_cross_entropy_is_noticed(tmp_path: Path, last: str, noticed: bool) -> None:
    program = f"\ndef mine(shape, num_classes, /): return nn.Sequential(Net(shape, num_classes), {last})\n"
    notices = load(written(tmp_path, "model", CALLABLES + program)).notices
    assert any("'parts:mine' gives probabilities" in notice for notice in notices) == noticed


def test_a_type_that_no_scenario_can_write_is_refused_in_a_line(tmp_path: Path) -> None:
    said = refused(tmp_path, "model", "import torch\ndef mine(shape, classes, /, *, t: torch.Tensor = None): ...\n")
    assert "has a parameter of a type that no scenario can write" in said
    assert "torch.Tensor" in said


def test_of_an_exception_of_many_lines_the_first_is_told(tmp_path: Path) -> None:
    said = refused(tmp_path, "topology", definition("topology", "raise RuntimeError('first\\nsecond')"))
    assert "RuntimeError: first (" in said


def test_data_that_are_not_there_are_no_mistake_of_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NETDFL_DATA", str(tmp_path / "nothing"))
    file = written(tmp_path, "model", definition("model", "return 7"))
    load(file, ["task.dataset.name=mnist"])


def test_what_breaks_later_is_one_line_as_well(tmp_path: Path) -> None:
    body = "\n    if len(x) > 2: raise KeyError('gone')\n    return x"
    scenario: Any = load(written(tmp_path, "augmentation", definition("augmentation", body)))
    with pytest.raises(InputError, match="the augmentation 'parts:mine' raised KeyError: 'gone'"):
        scenario.task.dataset.augment.build([1, 2, 3], None)


PAGE = Path(__file__).resolve().parents[2] / "docs" / "own_parts.md"


@pytest.mark.parametrize("what", sorted(CONTRACTS))
def test_the_page_says_what_each_kind_is_given(what: str) -> None:
    contract = CONTRACTS[what]
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| {what} |"))
    _, key, signature, given, home = row.strip("| ").split(" | ")
    assert (signature, given, home) == (
        f"`{contract.signature()}`",
        contract.help or "nothing",
        f"`{contract.returns.partition(':')[0]}`",
    )
    assert key.endswith(f".{CHOICES[what].key}`")
    contract.types()


def test_the_page_says_it_of_all() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[1:]] == list(CONTRACTS)


CLOSED = ["failure_detector: {kind: P}", "delivery: {kind: P}"]


@pytest.mark.parametrize("key", CLOSED)
def test_what_is_netdfls_alone_takes_no_own_part(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, "none", "def mine(): ...\n")
    file.write_text(file.read_text() + key.replace("P", '"parts:mine"') + "\n")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert "can't be one's own" in problem.what
    assert problem.remedy.startswith("use one of ")
    assert (problem.line, problem.column) == (7, key.index("P") + 1)


def test_a_folder_of_modules_is_not_edited_where_a_file_is_written_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "graphs.py").write_text("def alone():\n    pass\n")
    first = find_own("inner.graphs:alone", str(tmp_path))
    for name in ("a.txt", "b.txt"):
        assert find_own("inner.graphs:alone", str(tmp_path)) is first
        (tmp_path / name).touch()
    assert find_own("inner.graphs:alone", str(tmp_path)) is first
    (tmp_path / "inner" / "graphs.py").write_text("def alone():\n    return 1\n")
    assert find_own("inner.graphs:alone", str(tmp_path)) is not first
