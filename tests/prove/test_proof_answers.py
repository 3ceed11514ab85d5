"""What a proof answers: in words, as a scenario file that `netdfl run` shows, on the command line, and for pytest."""

from __future__ import annotations

import io
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

import netdfl
from netdfl.cli.commands import make_app
from netdfl.core.errors import InputError
from netdfl.explore.execute import Executor
from netdfl.prove.bound import read_bound
from netdfl.prove.command import prove as play_all
from netdfl.prove.counterexample import write_counterexample
from netdfl.prove.journal import ProofJournal
from netdfl.prove.player import Play
from netdfl.prove.proof import ScenarioProof
from netdfl.scenario.load import loads
from netdfl.testing import prove
from tests.prove.naive import FLEET, PAIR
from tests.prove.test_counts import ACKNOWLEDGED, proof

STALLS = FLEET | {"wait": {"deadline": "none"}}
SHORT = FLEET | {"rounds": 2}
SINGLE = FLEET | {"wait": {"for": {"quorum": 1}, "deadline": "none"}, "rounds": 2}
"""A ring that no single loss stalls, and two do."""


def test_a_proof_says_its_bound_and_what_it_holds_for() -> None:
    answer = proof(PAIR, "loss: 1").run()
    assert str(answer).splitlines() == [
        "survives all 5 schedules (bound: up to 1 loss; messages: data, request, reply, ack, notice; "
        "seed 0, these times)",
        "properties: no stall; all that should finish do; no divergence",
    ]
    drawn = proof(PAIR | {"links": {"default": {"latency": "5ms", "loss": 1e-9}}}, "crash: 1").run()
    assert "drawn here, so that it does not hold for other seeds: loss on links" in str(drawn)


def test_one_fault_is_survived_where_it_takes_two_and_the_two_are_the_counterexample() -> None:
    assert proof(SINGLE, "loss: 1").run().survives
    answer = proof(SINGLE, "loss: 2").run()
    assert str(answer).startswith("does not survive 2 faults (bound: up to 2 losses")
    found = write_counterexample(answer)
    assert re.search(r"# Event log: \w{32}\n", found.text)
    assert len(yaml.safe_load(found.text)["events"]) == 2
    assert found.sentence.startswith("node 1 waits in round 0 for nodes 0 and 2, whose messages were lost")


def test_a_counterexample_shows_what_its_comment_says_with_the_hash_that_it_names() -> None:
    answer = proof(STALLS, "loss: 2").run()
    text, sentence = write_counterexample(answer)
    run = Executor().run(loads(text))
    assert f"# Event log: {run.event_log_hash}\n" in text
    assert run.stalls[0].what == sentence
    assert sentence == (
        "node 1 waits in round 0 for node 0, whose message was lost on 0->1 (events[0]); 0 and 2 wait behind it"
    )
    assert yaml.safe_load(text)["events"] == [{"at_round": 0, "drop": "0->1"}], "no key that tells nothing"


def test_a_search_that_is_not_finished_says_how_far_it_came_and_never_that_it_survives() -> None:
    answer = proof(FLEET, "loss: 2").run(seconds=0.0)
    assert not answer.survives
    assert str(answer).startswith(
        "not finished, as its time is over: 1 schedule keeps all properties; plays by faults: "
    )
    assert "survives" not in str(answer)


@pytest.mark.parametrize(
    ("plain", "faults", "names", "told"),
    [
        (FLEET, "loss: 9", (), "these are at least"),
        (FLEET, "flood: 1", (), "'flood' is no kind of fault; use loss, crash, pause, cut, delay"),
        (FLEET, "loss", (), "say once how many of loss"),
        (FLEET, "loss 1", (), "'loss 1' can't be read"),
        (FLEET, "loss: 1", ("weight",), "weight is a property of push-sum, and dpsgd has no weights"),
        (FLEET, "loss: 1", ("speed",), "'speed' is none; use stall"),
        (FLEET | {"world": "processes"}, "loss: 1", (), "use --on simulated"),
        (STALLS | {"events": [{"at_round": 0, "drop": "0->1"}]}, "loss: 1", (), "fails without any fault"),
    ],
)
def test_what_can_not_be_proven_is_refused_in_a_sentence(
    plain: dict[str, Any], faults: str, names: tuple[str, ...], told: str
) -> None:
    with pytest.raises(InputError, match=re.escape(told)):
        proof(plain, faults, names, most=10_000).run()


def test_a_task_with_data_is_refused() -> None:
    with pytest.raises(InputError, match="prove it on a toy task"):
        proof(
            {"schema": "netdfl/1", "name": "n", "nodes": 3, "rounds": 1, "world": "simulated", "algorithm": "dpsgd"}
            | {"topology": "ring", "task": {"dataset": "digits", "model": "mlp"}},
            "loss: 1",
        )


def test_messages_without_a_last_one_need_a_round() -> None:
    with pytest.raises(InputError, match="heartbeat has no last one; say up to which round"):
        read_bound("loss: 1", "data, heartbeat")
    assert str(read_bound("loss: 1, crash: 2", "data, heartbeat: 3")) == (
        "up to 1 loss and 2 crashes; messages: data, heartbeat up to round 3"
    )


def test_for_pytest_it_is_one_line() -> None:
    assert prove(PAIR, "loss: 1").survives
    assert prove(PAIR, "loss: 1", consensus=1.0).survives
    with pytest.raises(AssertionError, match=r"node 1 waits in round 0(?s:.*)The smallest schedule, as a scenario:"):
        prove(PAIR | {"wait": {"deadline": "none"}}, "loss: 1")
    with pytest.raises(AssertionError, match="the consensus distance is"):
        prove(PAIR | {"rounds": 1}, "loss: 1", consensus=1e-9, properties=["stall"])


def test_weight_that_is_given_up_is_lost_and_counted() -> None:
    """Sent once alone, a share that is lost is given up; sent again, none is."""
    once = PAIR | ACKNOWLEDGED | {"algorithm": "sgp", "rounds": 1}
    once["delivery"] = {"kind": "acknowledged", "timeout": "12ms", "attempts": 0}
    once["wait"] = {"deadline": "20ms"}
    answer = proof(once, "loss: 1", ("weight",)).run()
    assert answer.progress.broken is not None
    assert answer.progress.broken[2] == "push-sum weight was lost: 1.5 of 2 is held, under way or unacknowledged"
    assert proof(once, "loss: 1", ("counted",)).run().survives
    assert proof(once | {"delivery": ACKNOWLEDGED["delivery"]}, "loss: 1", ("weight", "counted")).run().survives
    with pytest.raises(InputError, match="counted is about delivery: acknowledged"):
        proof(once | {"delivery": "plain"}, "loss: 1", ("counted",))


def test_two_processes_say_what_one_says() -> None:
    alone, together = (proof(SINGLE, "loss: 2", jobs=jobs).run() for jobs in (1, 2))
    assert alone.faults == together.faults
    short = PAIR | {"rounds": 1}
    assert proof(short, "loss: 1, crash: 1", jobs=2).run().progress == proof(short, "loss: 1, crash: 1").run().progress


def test_the_command_writes_the_counterexample_and_says_it_by_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ring.yaml").write_text(yaml.safe_dump(STALLS))
    app, runner = make_app(), CliRunner()
    broken = runner.invoke(app, ["prove", "ring.yaml"])
    assert broken.exit_code == 1, broken.output
    assert "netdfl run proved/fleet/counterexample.yaml" in broken.output
    assert netdfl.run("proved/fleet/counterexample.yaml", page=False).result["verdict"] == "fail"
    well = runner.invoke(app, ["prove", "ring.yaml", "--set", "wait.deadline=20ms", "--seeds", "2"])
    assert well.exit_code == 0, well.output
    assert well.output.count("survives all 19 schedules") == 2
    late = runner.invoke(app, ["prove", "ring.yaml", "--set", "wait.deadline=20ms", "--time", "1ns"])
    assert (late.exit_code, "survives" in late.output) == (3, False)


def test_what_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    """And says the same as a proof in one go; a proof of something else begins anew."""
    console = Console(file=io.StringIO(), width=500)

    def stopped_after(plays: int) -> ScenarioProof:
        proven, many = proof(SHORT, "loss: 2"), itertools.count(1)

        def count(play: Play) -> None:
            if next(many) == plays:
                raise KeyboardInterrupt

        proven.enumeration.prefix_player = replace(proven.enumeration.prefix_player, seen=count)
        return proven

    assert play_all(stopped_after(9), tmp_path, console) == 130
    assert not (tmp_path / "progress.json").exists(), "the plays with few faults are made anew"
    assert play_all(stopped_after(50), tmp_path, console) == 130
    whole, rest = proof(SHORT, "loss: 2"), proof(SHORT, "loss: 2")
    answer = whole.run()
    assert ProofJournal(tmp_path, proof(SHORT, "loss: 1")).answered is None
    assert play_all(rest, tmp_path, console) == 0
    assert rest.enumeration.answered is not None
    assert rest.enumeration.answered.done == 50 - 1 - 12 - 1
    assert f"survives all {answer.progress.schedules:,} schedules" in console.file.getvalue()  # type: ignore[attr-defined]
    assert not (tmp_path / "progress.json").exists()


def test_a_lost_notice_stalls_nobody_where_messages_are_acknowledged() -> None:
    """Each node chooses one receiver, and says by a notice to the others that nothing comes."""
    choosing = {"task": {"kind": "quadratic"}, "algorithm": {"name": "dfedsgpsm_s", "lr": 0.05, "neighbors": 1}}
    fleet = {**FLEET, **choosing, "wait": {"deadline": "none"}}
    assert proof({**fleet, "delivery": "acknowledged"}, "loss: 1").run().survives
    assert not proof({**fleet, "delivery": "plain"}, "loss: 1").run().survives


OWN = """
from netdfl.extend import Algorithm, Entry, Exchange, Sgd, gossip, local_sgd


def mine(exchange: Exchange, /, *, sgd: Sgd = Sgd()) -> Algorithm:
    return gossip(exchange, local_sgd(sgd))


MINE = Entry(mine, "gossip", frozenset({"doubly"}), "of a user")
"""


def test_an_algorithm_of_ones_own_is_proven_like_one_of_the_catalog(tmp_path: Path) -> None:
    (tmp_path / "own_for_proof.py").write_text(OWN)
    file = tmp_path / "fleet.yaml"
    theirs, ours = SHORT | {"algorithm": "own_for_proof:MINE"}, SHORT | {"algorithm": "dpsgd"}
    answers = []
    for keys in (theirs, ours):
        file.write_text(yaml.safe_dump(keys))
        answers.append(CliRunner().invoke(make_app(), ["prove", str(file), "--faults", "loss: 1"]))
    assert [answer.exit_code for answer in answers] == [answers[1].exit_code] * 2
    assert "schedules" in answers[0].output
    assert re.findall(r"\d+ schedules", answers[0].output) == re.findall(r"\d+ schedules", answers[1].output)
