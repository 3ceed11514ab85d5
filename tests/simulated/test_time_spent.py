"""A run says where its time went: exact in the simulated world, whatever it waited for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from netdfl.report.words import round_words
from netdfl.running.run import run
from netdfl.scenario.load import loads

FLEET = """
schema: netdfl/1
name: times
nodes: 4
world: {kind: simulated, compute: 1s}
task: quadratic
links: {default: {latency: 50ms}}
"""
RING = "topology: ring\nalgorithm: {name: dpsgd, lr: 0.1}\n"
STAR = "topology: star\nalgorithm: {name: fedavg, lr: 0.1}\n"
TEN = "rounds: 10\n"
NO_DEADLINE = "wait: {deadline: none}\n"
PARTS = ("compute", "links", "resending", "deadlines", "lost", "behind", "rest", "end")


def spent(tmp_path: Path, *text: str) -> dict[str, Any]:
    result = run(loads("".join([FLEET, *text])), out=tmp_path / "run", page=False).result
    found: dict[str, Any] = result["time"]
    assert found["total_s"] == result["virtual_duration_s"]
    assert math.fsum(found[f"{part}_s"] for part in PARTS) == pytest.approx(found["total_s"], abs=1e-9)
    return found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (RING + TEN + NO_DEADLINE, "10.5 s: 10 s of compute, 500 ms on links"),
        (STAR + TEN, "11 s: 10 s of compute, 1 s on links"),
        (
            RING + TEN + NO_DEADLINE + "events: [{at: 0s, slow_down: 2, factor: 10}]\n",
            "91.1 s: 81 s waiting for node 2, which took up to 10 times as long to compute as the median node, "
            "10 s of compute",
        ),
        (
            RING + TEN + NO_DEADLINE + "events: [{at_round: 3, pause: 3, for: 20s}]\n",
            "30.5 s: 20 s waiting for node 3, which was paused, 10 s of compute, 500 ms on links",
        ),
        (
            RING.replace("ring", "{kind: ring}") + TEN + "wait: {deadline: 5s}\nevents: "
            "[{at_round: 4, for_rounds: 1, link: '3->0', loss: 1}]\n",
            "15.4 s: 10 s of compute, 5 s until deadlines, for messages of node 3 that did not come in time, "
            "450 ms on links",
        ),
        (
            RING + "rounds: 40\nfailure_detector: oracle\nwait: {deadline: 30s}\n"
            "events: [{at_round: 3, crash: 3, restart_after: 9.45s, rejoin: replay}]\n",
            "321 s: 279 s waiting for node 3, which had crashed and was up to 9 rounds behind "
            "(270 s of it until deadlines), 40 s of compute",
        ),
    ],
    ids=["compute and links", "a server", "a slow node", "a paused node", "a lost message", "a node back from a crash"],
)
def test_the_time_is_told_in_a_sentence(tmp_path: Path, text: str, told: str) -> None:
    assert spent(tmp_path, text)["text"] == told


def test_a_message_sent_again_is_told_from_a_slow_link(tmp_path: Path) -> None:
    once = "delivery: acknowledged\nevents: [{from: 0s, to: 2.5s, partition: [[0, 1], [2, 3]]}]\n"
    found = spent(tmp_path, RING + TEN + NO_DEADLINE + once)
    assert found["compute_s"] == 10
    assert found["links_s"] == pytest.approx(0.5)
    assert found["resending_s"] == pytest.approx(found["total_s"] - 10.5)


def test_a_partition_that_holds_messages_is_told(tmp_path: Path) -> None:
    parted = "events: [{at: 2.5s, for: 20s, partition: [[0, 1], [2, 3]], mode: down_hold}]\n"
    found = spent(tmp_path, RING + TEN + NO_DEADLINE + parted)
    assert found["links_parted_s"] == pytest.approx(19.4)  # sent at 3.1 s, held until 22.5 s
    assert "(19.4 s of it while the fleet was parted)" in found["text"]


def test_every_round_has_its_length_and_its_deadline(tmp_path: Path) -> None:
    found = spent(
        tmp_path, RING + "rounds: 4\nwait: {deadline: 5s}\nevents: [{at_round: 2, for_rounds: 1, link: all, loss: 1}]\n"
    )
    assert found["rounds"]["median_s"] == pytest.approx([1.05, 1.05, 6, 1.05])
    assert found["rounds"]["longest_s"] == pytest.approx([1.05, 1.05, 6, 1.05])
    assert found["rounds"]["deadline_s"] == pytest.approx([5, 5, 5, 5])
    assert round_words(found) == "1.05 s at the median, 6 s at most (round 2); a deadline of 5 s"


def test_a_run_that_stands_still_says_who_it_waited_for_at_the_end(tmp_path: Path) -> None:
    lost = "events: [{at_round: 4, for_rounds: 1, link: '3->0', loss: 1}]\n"
    found = spent(tmp_path, RING + TEN + NO_DEADLINE + lost)
    assert "1.05 s at the end, in which node 0 waited in vain and no node went on" in found["text"]
    assert (found["behind"], found["rest_s"]) == ([], 0)
    assert found["end_s"] > 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            RING + TEN + NO_DEADLINE + "events: [{at: 1020ms, for: 20s, pause: 3}]\n",
            "30.5 s: 20 s waiting for node 3, which was paused, 10 s of compute, 500 ms on links",
        ),
        (
            STAR + TEN + NO_DEADLINE + "events: [{at: 20ms, for: 20s, pause: 2}]\n",
            "31 s: 20 s waiting for node 2, which was paused, 10 s of compute, 1 s on links",
        ),
        (
            STAR + TEN + NO_DEADLINE + "events: [{at: 2220ms, for: 5s, pause: 2}]\n",
            "16 s: 10 s of compute, 4.97 s waiting for node 2, which was paused, 1 s on links",
        ),
    ],
    ids=["of a ring", "of a star, at the beginning", "of a star"],
)
def test_a_message_that_came_in_a_pause_of_its_receiver_was_not_on_a_link_since(
    tmp_path: Path, text: str, told: str
) -> None:
    found = spent(tmp_path, text)
    assert found["text"] == told
    assert found["rest_s"] == pytest.approx(0)


def test_a_lost_message_is_told_as_lost_until_its_sender_crashed(tmp_path: Path) -> None:
    """Node 1 crashes long after its message was lost; nobody believed that it was gone before."""
    events = "events: [{at_round: 1, drop: 1->0}, {at: 15s, crash: 1}]\n"
    found = spent(tmp_path, RING + TEN + NO_DEADLINE + "delivery: plain\n" + events)
    assert found["behind"] == []
    assert found["lost_s"] == pytest.approx(15 - 2.05)
    assert " s for messages of node 1 that were lost" in found["text"]


def test_a_run_in_which_nobody_ended_a_round_says_who_waited_in_vain(tmp_path: Path) -> None:
    """The run goes on until the partition begins, since that might end the stall."""
    events = "events: [{at_round: 0, link: all, loss: 1}, {at: 4s, for: 1s, partition: [[0], [1]]}]\n"
    two = FLEET.replace("nodes: 4", "nodes: 2") + RING.replace("ring", "full") + TEN
    ran = run(loads(two + NO_DEADLINE + "delivery: plain\n" + events), out=tmp_path / "run")
    found = ran.result["time"]
    vain = "3 s at the end, in which nodes 0 and 1 waited in vain and no node went on"
    assert found["text"] == f"4 s: {vain}, 1 s of compute"
    assert (found["rounds"]["median_s"], round_words(found)) == ([], "")
    assert "No node ended a round." in (tmp_path / "run" / "report.html").read_text()


def test_a_node_that_joins_waits_for_a_model_on_links(tmp_path: Path) -> None:
    """It asks at 0.9 s and has a model at 2.9 s; then it computes round 1, for which the others wait."""
    slow = FLEET.replace("latency: 50ms", "latency: 1s") + RING + NO_DEADLINE
    ran = run(loads(f"{slow}rounds: 2\nevents: [{{at: 900ms, join: 3}}]\n"), out=tmp_path / "run", page=False)
    absent = "900 ms waiting for node 3, which had not joined yet"
    assert ran.result["time"]["text"] == f"4.9 s: 3 s on links, 1 s of compute, {absent}"
