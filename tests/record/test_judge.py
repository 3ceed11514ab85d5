"""The verdict: defaults, what replaces them, and which exit code wins."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from netdfl.core.errors import InputError
from netdfl.record.judge import CAUTIONS, FIGURES, Evidence, ExitCode, judge
from netdfl.scenario.load import load
from netdfl.scenario.model.schema import Expectation

WELL = Evidence(figures={"test_accuracy": 0.8, "consensus_distance": None})
MODES = ("none", "some", "any")
SCENARIO: dict[str, Any] = {
    "schema": "netdfl/1",
    "name": "judged",
    "nodes": 4,
    "rounds": 2,
    "task": {"kind": "consensus"},
    "algorithm": {"name": "dpsgd"},
    "topology": "ring",
}
# In order of precedence: what goes wrong, and the verdict and exit code that it brings.
WRONGS: list[tuple[dict[str, Any], str, int]] = [
    ({"interrupted": True}, "unknown", 130),
    ({"broke": "the disk is full"}, "unknown", 4),
    ({"died": {3: "node 3 died in round 2: killed by SIGKILL"}}, "fail", 1),
    ({"deadlocks": ["deadlock: 1 and 2 wait for each other"]}, "fail", 1),
    ({"not_finite": ["node 1 had a loss that is not finite in round 9"]}, "fail", 1),
    ({"fidelity_missed": "link 0->1 was 40 % slow"}, "unknown", 3),
    ({"open_stalls": ["stalled at the end: node 2"]}, "fail", 1),
]


def test_a_run_without_findings_passes_what_it_was_asked_and_is_done_where_nothing_was_asked() -> None:
    assert judge(WELL, {})[:3] == ("done", [], 0)
    assert judge(WELL, {"deadlock": "none"})[:3] == ("pass", [], 0)


@pytest.mark.parametrize(("wrong", "verdict", "code"), WRONGS)
def test_each_default_has_its_verdict_and_its_reason(wrong: dict[str, Any], verdict: str, code: int) -> None:
    judgement = judge(replace(WELL, **wrong), {})
    assert (judgement.verdict, judgement.exit_code, len(judgement.reasons)) == (verdict, code, 1)


@pytest.mark.parametrize(("first", "second"), list(combinations(WRONGS, 2)))
def test_of_two_wrongs_the_graver_decides(first: Any, second: Any) -> None:
    judgement = judge(replace(WELL, **first[0], **second[0]), {})
    assert (judgement.verdict, judgement.exit_code) == first[1:]


def test_missed_fidelity_wins_over_a_missed_accuracy_but_not_over_a_death() -> None:
    expect = {"test_accuracy": {"at_least": 0.9}}
    unfaithful = replace(WELL, fidelity_missed="link 0->1 was 40 % slow")
    assert judge(unfaithful, expect).exit_code is ExitCode.UNKNOWN
    assert judge(replace(unfaithful, died={1: "node 1 died"}), expect).exit_code is ExitCode.FAIL


@pytest.mark.parametrize(
    ("not_finite", "died", "verdict"),
    [
        ("none", "none", "fail"),
        ("some", "none", "pass"),
        ("any", "none", "pass"),
        ("some", [4], "fail"),
        ("some", [3], "pass"),
    ],
)
def test_who_falls_by_its_own_nan_may_where_nan_is_expected(not_finite: str, died: object, verdict: str) -> None:
    findings = Evidence(died={3: "node 3 died"}, not_finite=["node 3: NaN"], fell={3})
    assert judge(findings, {"not_finite": not_finite, "died": died}).verdict == verdict


def test_another_death_is_none_of_nan() -> None:
    findings = Evidence(died={3: "node 3 died", 4: "node 4 died"}, not_finite=["node 3: NaN"], fell={3})
    assert judge(findings, {"not_finite": "any", "died": "none"}).reasons == ["node 4 died"]


@pytest.mark.parametrize(("expected", "verdict"), [("none", "fail"), ("some", "pass"), ("any", "pass")])
def test_a_refused_nan_is_one_of_some_and_breaks_a_none_that_is_said(expected: str, verdict: str) -> None:
    findings = Evidence(refused_not_finite=["node 1 sent NaN"], num_refused=1, num_delivered=100)
    assert judge(findings, {"not_finite": expected}).verdict == verdict
    assert judge(findings, {}).verdict == "done"


@pytest.mark.parametrize("num", [0, 1, 50, 51, 100])
def test_where_nothing_is_said_of_nan_most_messages_may_not_have_been_refused_for_it(num: int) -> None:
    sentences = ["node 1 sent NaN"] * bool(num)
    findings = Evidence(refused_not_finite=sentences, num_refused=num, num_delivered=100)
    for expect in ({}, {"deadlock": "none"}):
        judgement = judge(findings, expect)
        assert (judgement.exit_code is ExitCode.FAIL) is (num > 50)
        said = [f"{num} of 100 messages held NaN or infinity and were refused", "node 1 sent NaN"]
        assert judgement.reasons == (said if num > 50 else [])


@pytest.mark.parametrize("name", ["deadlock", "stall", "unfinished", "not_finite", "died"])
def test_an_expectation_replaces_its_default(name: str) -> None:
    found: dict[str, Any] = {
        "deadlock": {"deadlocks": ["deadlock: x"]},
        "stall": {"open_stalls": ["stalled: x"]},
        "unfinished": {"unfinished": ["node 1 has not finished"]},
        "not_finite": {"not_finite": ["node 1: x"]},
        "died": {"died": {1: "node 1 died"}},
    }[name]
    occurred = replace(WELL, **found)
    table = {mode: (judge(occurred, {name: mode}).verdict, judge(WELL, {name: mode}).verdict) for mode in MODES}
    assert table == {"none": ("fail", "pass"), "some": ("pass", "fail"), "any": ("pass", "pass")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", Expectation.model_fields)
def test_a_scenario_may_say_each_word_of_each_expectation(name: str, mode: str) -> None:
    scenario = load(SCENARIO | {"expect": {name: mode}})
    assert scenario.expect.entries() == {name: mode}
    assert judge(WELL, scenario.expect.entries()).verdict == ("fail" if mode == "some" else "pass")


def test_no_figure_has_the_name_of_an_expectation_of_another_form() -> None:
    assert not set(FIGURES) & set(Expectation.model_fields)


@pytest.mark.parametrize("name", CAUTIONS)
def test_a_warning_is_judged_where_that_is_asked_for_alone(name: str) -> None:
    warned = replace(WELL, cautions={name: [f"{name}: from 1 to 1e9"]})
    assert judge(warned, {}).verdict == "done"
    table = {mode: (judge(warned, {name: mode}).verdict, judge(WELL, {name: mode}).verdict) for mode in MODES}
    assert table == {"none": ("fail", "pass"), "some": ("pass", "fail"), "any": ("pass", "pass")}
    assert judge(warned, {name: "none"}).reasons == [f"{name}: from 1 to 1e9"]


@pytest.mark.parametrize(
    ("expect", "met"),
    [
        ({"deadlock": "some"}, ("a deadlock was expected, and occurred",)),
        ({"died": [1], "deadlock": "any"}, ("deaths of nodes were expected, and occurred",)),
        ({"deadlock": "any", "died": "any"}, ()),
    ],
)
def test_a_pass_says_which_failures_it_was_to_have(expect: dict[str, Any], met: tuple[str, ...]) -> None:
    failed = replace(WELL, deadlocks=["deadlock: x"], died={1: "node 1 died"})
    judged = judge(failed, {"deadlock": "any", "died": "any"} | expect)
    assert (judged.verdict, judged.reasons, judged.met) == ("pass", [], met)
    assert judge(WELL, {"deadlock": "some"}).met == ()


@pytest.mark.parametrize(
    ("died", "verdict"), [([], "fail"), ([4], "fail"), ([4, 5], "pass"), ([5, 4], "pass"), ([4, 5, 6], "fail")]
)
def test_exactly_the_named_nodes_must_die(died: list[int], verdict: str) -> None:
    findings = replace(WELL, died={4: "node 4 died", 5: "node 5 died"})
    assert judge(findings, {"died": died}).verdict == verdict


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ({"at_least": 0.8}, "pass"),
        ({"at_least": 0.81}, "fail"),
        ({"at_most": 0.8}, "pass"),
        ({"at_most": 0.79}, "fail"),
        ({"at_least": 0.7, "at_most": 0.9}, "pass"),
        ({"at_least": 0.7, "at_most": None}, "pass"),
    ],
)
def test_a_figure_is_held_to_its_bounds(bounds: dict[str, float], verdict: str) -> None:
    assert judge(WELL, {"test_accuracy": bounds}).verdict == verdict


def test_a_figure_that_was_never_measured_fails_its_bound() -> None:
    judgement = judge(WELL, {"consensus_distance": {"at_most": 1.0}})
    assert judgement.exit_code is ExitCode.FAIL
    assert "never measured" in judgement.reasons[0]


def test_a_reason_says_what_was_expected_and_what_came() -> None:
    reasons = judge(WELL, {"test_accuracy": {"at_least": 0.9}}).reasons
    assert reasons == ["test_accuracy was expected to be at least 90% and is 80%"]


@pytest.mark.parametrize("expect", [{"deadlock": "maybe"}, {"speed": {"at_least": 1}}, {"test_loss": {"over": 1}}])
def test_an_expectation_that_means_nothing_is_refused(expect: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="expect"):
        judge(WELL, expect)
