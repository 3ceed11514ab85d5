"""What a reader has to know whatever a scenario expects: collapse, divergence, time-outs, lost weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from netdfl.core.errors import ScenarioError
from netdfl.core.fates import MessageCounts
from netdfl.record.cautions import Caution, CautionKind, find_cautions
from netdfl.record.evaluated import EvaluatedValue
from netdfl.record.observations import HeldWeight, Observations, Outlier, RunFacts
from netdfl.report.html import render
from netdfl.report.words import warnings
from netdfl.running.judged import FinishedRun
from netdfl.running.run import run
from netdfl.scenario.load import loads

LOSSY = MessageCounts(sent=100, delivered=90, lost=10)


NOTHING = Observations(
    series={},
    messages=MessageCounts(sent=100, delivered=100),
    nbytes=0,
    train_loss=None,
    timed_out=0,
    waits=0,
    lost_weight=0.0,
    new_weight=0.0,
    outliers=(),
    least=None,
    deaths=(),
    crashes=(),
    not_finite=(),
    fell=(),
    refused=(),
    mixed=(),
)
LONG, ABSURD = (Outlier(1, "model", 0, 2, size, 1.0) for size in (1e5, 1e20))
HEAVY = Outlier(1, "weight", 0, 0, 11.0, 1.0)


def told(
    not_finite: Sequence[str] = (), plain: bool = True, weight: float | None = None, **observed: Any
) -> list[Caution]:
    """The cautions about a run of one node; metrics are given by their values, the last `weight_sum` as `weight`."""
    metrics = {name: observed.pop(name) for name in ("test_accuracy", "consensus_distance") if name in observed}
    metrics |= {} if weight is None else {"weight_sum": [weight]}
    series = {name: [EvaluatedValue(i, i, value) for i, value in enumerate(of)] for name, of in metrics.items()}
    facts = RunFacts(
        scenario="",
        seed=0,
        world="simulated",
        algorithm="",
        nodes=1,
        rounds=1,
        duration_s=0.0,
        delivery="plain" if plain else "acknowledged",
    )
    return find_cautions(replace(NOTHING, series=series, **observed), facts, not_finite)


def kinds(**course: Any) -> list[str]:
    return [caution.kind.value for caution in told(**course)]


@pytest.mark.parametrize(
    ("accuracy", "chance", "collapsed"),
    [
        ([0.2, 0.886, 0.1], 0.1, True),
        ([0.2, 0.95, 0.52], 0.5, True),  # a guess between two classes
        ([0.2, 0.886, 0.6], 0.1, False),
        ([0.12, 0.18, 0.09], 0.1, False),  # it had never learned anything
        ([0.1, 0.5, 0.9], 0.1, False),
        ([0.9], 0.0, False),
        ([], 0.0, False),
    ],
)
def test_a_collapse_is_the_loss_of_most_of_what_was_learned(
    accuracy: Sequence[float], chance: float, collapsed: bool
) -> None:
    assert kinds(test_accuracy=accuracy, chance=chance) == ["collapsed"] * collapsed


@pytest.mark.parametrize(
    ("values", "diverged"),
    [
        ([1.3**t for t in range(60)], True),
        ([5.0, 3e9, 3e9, 3e9], True),  # at once, and then no further
        ([0.3 * t for t in range(1, 60)], False),  # a ring so long that each round adds its own drift
        ([math.sqrt(t + 1) for t in range(60)], False),
        ([3 * math.exp(-t) for t in range(60)], False),
        ([1e-16, 1e-14, 1e-9, 0.4], False),  # equal up to rounding, until a link broke
        ([0.0] * 20, False),
        ([4e5], False),
    ],
)
def test_divergence_is_growth_beyond_what_rounds_add(values: Sequence[float], diverged: bool) -> None:
    assert kinds(consensus_distance=values) == ["diverged"] * diverged


def test_deadlines_that_ended_more_than_a_tenth_of_the_waits_are_told() -> None:
    assert kinds(timed_out=10, waits=100) == kinds(timed_out=0, waits=0) == []
    (caution,) = told(messages=LOSSY, timed_out=376, waits=1480)
    assert caution.text == "deadlines ended 376 of 1,480 waits (25%) with a message missing"


@pytest.mark.parametrize(
    ("course", "lost"),
    [
        ({"weight": 0.64, "messages": LOSSY}, True),
        ({"weight": 0.64}, False),  # all is under way
        ({"weight": 0.64, "messages": LOSSY, "plain": False}, False),  # in counters and unacknowledged
        ({"weight": 0.9, "messages": LOSSY, "plain": False, "lost_weight": 0.05}, True),
        ({"weight": 0.995, "messages": LOSSY}, False),
        ({"weight": None, "messages": LOSSY}, False),
    ],
)
def test_weight_is_lost_where_it_can_not_come_any_more(course: dict[str, Any], lost: bool) -> None:
    assert kinds(**course) == ["weight_lost"] * lost


@pytest.mark.parametrize(("lost", "said"), [(1, "the message that"), (1200, "the 1,200 messages that")])
def test_weight_lost_with_one_message_or_many_is_told_in_grammar(lost: int, said: str) -> None:
    messages = MessageCounts(sent=9000, delivered=9000 - lost, lost=lost)
    (caution,) = told(messages=messages, weight=0.5)
    assert caution.text.startswith(f"push-sum weight was lost with {said} never came: the nodes hold 0.5 of ")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"lost_states": [3]}, "with the state of node 3 and the message that never came: the nodes hold 0.5 of"),
        ({"lost_states": [3], "messages": MessageCounts(), "lost_weight": 1.0}, "with the state of node 3: the nodes"),
        ({"lost_states": [3, 0]}, "with the states of nodes 0, 3 and the message that never came: "),
        ({"messages": MessageCounts(sent=9, lost=2, unfinished=7)}, "began with, and 7 messages were still on "),
        ({"messages": MessageCounts(sent=9, lost=2, unfinished=1)}, "began with, and 1 message was still on "),
    ],
)
def test_weight_is_not_said_to_be_lost_with_messages_alone_where_it_was_not(more: dict[str, Any], said: str) -> None:
    (caution,) = told(**{"messages": MessageCounts(sent=9, delivered=8, lost=1), "weight": 0.5} | more)
    assert said in caution.text


def test_a_run_names_the_node_whose_state_took_weight_with_it(tmp_path: Path) -> None:
    scenario = loads(
        "{schema: netdfl/1, name: w, nodes: 4, rounds: 6, world: {kind: simulated, compute: 10ms},"
        " task: {kind: consensus, dim: 1}, topology: ring, algorithm: sgp, delivery: plain,"
        " wait: {for: all, deadline: 30ms}, links: {default: {latency: 5ms},"
        ' "0->1": {loss: {model: drop_list, messages: [{round: 4}]}}},'
        " events: [{at: 32ms, crash: 3, restart_after: 12ms, state: lost}]}"
    )
    (caution, *_) = run(scenario, out=tmp_path / "run", page=False).result["warnings"]
    assert caution["text"].startswith("push-sum weight was lost with the state of node 3 and the message that never")


@pytest.mark.parametrize(
    ("course", "expected"),
    [
        ({"least": HeldWeight(1.6e-11, 7, 3)}, ["low_weight"]),
        ({"least": HeldWeight(9.9e-5, 7, 3)}, ["low_weight"]),
        ({"least": HeldWeight(1.1e-4, 7, 3)}, []),
        ({"least": None}, []),
        ({"least": HeldWeight(1.6e-11, 7, 3), "weight": 0.5, "messages": LOSSY}, ["weight_lost"]),  # as all weights are
    ],
)
def test_a_weight_so_small_that_steps_get_long_is_told(course: dict[str, Any], expected: list[str]) -> None:
    assert kinds(**course) == expected


def test_the_notice_of_a_small_weight_says_whose_when_and_what_to_do() -> None:
    (caution,) = told(messages=MessageCounts(), least=HeldWeight(1.6e-11, 7, 3))
    assert caution.text == (
        "the push-sum weight of node 3 was down to 1.6e-11 in round 7: steps are divided by it, and training may "
        "diverge; let it receive from more nodes, or give its steps a clip_norm"
    )


def test_a_loss_that_is_not_finite_comes_first() -> None:
    text = "node 1 had a loss that is not finite in round 3"
    found = told(messages=LOSSY, not_finite=[text], weight=0.2)
    assert (found[0].kind, found[0].text) == (CautionKind.NOT_FINITE, text)


PLAIN_PUSH_SUM = """
schema: netdfl/1
name: plain-push-sum
seed: 1
nodes: 8
rounds: 40
world: simulated
task:
  dataset: {name: digits, partition: {kind: dirichlet, alpha: 0.3}}
  model: mlp
  batch_size: 32
algorithm: {name: osgp, lr: 0.1, local_epochs: 1}
topology: {kind: random_push, out_neighbors: 3}
delivery: plain
wait: {deadline: 200ms}
links: {default: {loss: 40%}}
evaluation: {every: 4}
"""


@pytest.fixture(scope="module")
def ruined(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    return run(loads(PLAIN_PUSH_SUM), out=tmp_path_factory.mktemp("runs") / "run", page=False)


def test_a_run_that_lost_its_mass_is_done_and_says_what_became_of_it(ruined: FinishedRun) -> None:
    result = ruined.result
    assert (result["verdict"], result["reasons"], ruined.exit_code) == ("done", [], 0)
    assert {"collapsed", "weight_lost", "timeouts"} <= {each["kind"] for each in result["warnings"]}
    head = unescape(render(ruined.run))
    head = head[: head.index("<main")]
    for text in warnings(result):
        assert text in head


@pytest.mark.parametrize(
    ("sets", "reason"),
    [
        ("collapsed=none", "collapsed: the average model's accuracy fell from"),
        ("weight_lost=none", "push-sum weight was lost with the"),
        ("lost={at_most: 5%}", "lost was expected to be at most 5% and is 4"),
        ("timeouts={at_most: 0.1}", "timeouts was expected to be at most 10% and is"),
    ],
)
def test_what_is_warned_of_can_be_judged(ruined: FinishedRun, sets: str, reason: str) -> None:
    from netdfl.record.result import summarize
    from netdfl.running.judged import facts_of

    judged = summarize(ruined.run, facts_of(loads(PLAIN_PUSH_SUM, [f"expect.{sets}"]), 1.0)).judgement
    assert judged.exit_code == 1
    assert judged.reasons[0].startswith(reason)


def test_an_expectation_survives_being_written_down_and_its_absence_too() -> None:
    from netdfl.scenario.loading.resolved import to_yaml

    for sets, entries in (([], {}), (["expect.deadlock=none"], {"deadlock": "none"})):
        scenario = loads(PLAIN_PUSH_SUM, sets)
        assert scenario.expect.entries() == entries
        assert loads(to_yaml(scenario)).expect.entries() == entries


def test_a_bound_that_is_no_number_is_refused() -> None:
    assert loads(PLAIN_PUSH_SUM, ["expect.late={at_most: 5%}"]).expect.entries() == {"late": {"at_most": 0.05}}
    for wrong, words in (("few", "is no share"), ("120%", "percentage")):
        with pytest.raises(ScenarioError, match=words):
            loads(PLAIN_PUSH_SUM, [f"expect.late={{at_most: {wrong}}}"])


def test_each_kind_of_warning_is_in_the_table_of_the_page_of_results() -> None:
    page = (Path(__file__).parents[2] / "docs/results.md").read_text(encoding="utf-8")
    assert [kind for kind in CautionKind if f"| `{kind}` |" not in page] == []


def test_weight_that_nobody_began_with_is_told_and_what_returning_nodes_bring_is_not() -> None:
    assert kinds(weight=1.1, outliers=[HEAVY]) == ["weight_made", "outlier"]
    assert kinds(weight=1.1, new_weight=0.1, outliers=[HEAVY]) == kinds(weight=1.0 + 1e-9, outliers=[HEAVY]) == []


def test_weight_that_was_taken_back_though_it_had_come_is_nobodys_lie() -> None:
    """Node 4 of under_loss keeps a share and crashes before its acknowledgment arrives; it returns with the share."""
    gone = MessageCounts(sent=100, delivered=98, undeliverable=2)

    def first(**more: Any) -> str:
        return told(weight=1.04, **more)[0].text

    came = "; a share that its sender took back, because the receiver was gone, had come before"
    assert first(messages=gone, plain=False).endswith(came)
    lie = "; some member sent weight that it did not have"
    assert first(messages=gone, plain=True).endswith(lie), (
        "a share that is sent once and was not delivered did not come"
    )
    assert first(messages=MessageCounts(sent=100, delivered=100), plain=False).endswith(lie)
    assert first(messages=gone, plain=False, outliers=[HEAVY]).endswith(lie)


def test_a_long_model_is_told_of_a_run_that_broke_and_an_absurd_one_of_every_run() -> None:
    assert kinds(outliers=[LONG]) == []
    assert kinds(outliers=[ABSURD]) == ["outlier"]
    assert kinds(outliers=[LONG], not_finite=["NaN"]) == ["not_finite", "outlier"]
