"""After crashes and losses the record accounts for the push-sum weight that is missing, to the last share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from netdfl.explore.observed import lost_weight
from netdfl.prove.player import Player
from netdfl.running.run import run
from netdfl.scenario.load import load
from tests.prove.naive import FLEET, PAIR
from tests.prove.test_counts import ACKNOWLEDGED, proof

RANDOM = {"topology": {"kind": "random_push", "out_neighbors": 1, "redraw_every": 1}}
HEARD = {"failure_detector": {"kind": "heartbeat"}}


@pytest.mark.parametrize(
    "plain",
    [PAIR, PAIR | HEARD, FLEET | RANDOM],
    ids=["state lost as the last share was under way", "acknowledged, not yet taken note of", "taken before a crash"],
)
def test_all_weight_that_a_crash_takes_away_is_in_the_record(plain: dict[str, Any]) -> None:
    """A share that is under way as its sender loses its state is nobody's once its receiver has refused it."""
    answer = proof({**plain, "algorithm": "sgp", **ACKNOWLEDGED}, "crash: 1", ("counted",)).run()
    assert answer.survives, answer.progress.broken


def attempts(number: int) -> dict[str, Any]:
    """Acknowledged delivery that sends a message again so many times."""
    return {**ACKNOWLEDGED, "delivery": {**ACKNOWLEDGED["delivery"], "attempts": number}}


@pytest.mark.parametrize(
    ("method", "delivery"),
    [
        ("sgp", attempts(2)),
        pytest.param("sgp", attempts(0), marks=pytest.mark.soak),  # the next one gives up at once, too
        pytest.param("overlap_sgp", attempts(0), marks=pytest.mark.soak),
    ],
    ids=["sent again", "given up at once", "taken a round later"],
)
def test_all_weight_that_a_crash_with_a_loss_takes_away_is_in_the_record(method: str, delivery: dict[str, Any]) -> None:
    """The loss may be that of an acknowledgement, so that a share is in a lost state and is sent again, too."""
    answer = proof({**PAIR, "algorithm": method, **delivery}, "loss: 1, crash: 1", ("counted",)).run()
    assert answer.survives, answer.progress.broken


UNHEARD = {"at_round": 0, "drop": "0->1", "kind": "ack", "step": 0, "attempt": 0, "incarnation": 0, "number": 0}
LOST = {"at": "20ms", "crash": 0, "restart_after": "15ms", "state": "lost"}
PUSHING = PAIR | {"algorithm": "sgp", "wait": {"deadline": "none"}}
CHOOSING: dict[str, Any] = {
    **FLEET,
    "task": {"kind": "quadratic"},
    "algorithm": {"name": "dfedsgpsm_s", "lr": 0.05, "neighbors": 1},
    "wait": {"for": {"quorum": 1}, "deadline": "none"},
}
"""A fleet in which a node may come back to the round in which it had sent a share."""
FATES: dict[str, tuple[dict[str, Any], int, list[dict[str, Any]], float]] = {
    "in a lost state, and kept by its sender": (PUSHING, 2, [UNHEARD, LOST], 0.5),
    "in a lost state, and taken again": (PUSHING | {"rounds": 5}, 2, [UNHEARD, LOST], 0.5),
    "in a state that is lost by an entry of its own": (
        PUSHING | {"rounds": 5},
        2,
        [UNHEARD, {"at": "20ms", "crash": 0}, {"at": "35ms", "restart": 0, "state": "lost"}],
        0.5,
    ),
    "not stored, and given up": (
        PUSHING,
        0,
        [{**UNHEARD, "kind": "data"}, {"at": "30.000001ms", "crash": 1, "restart_after": "15ms"}],
        1.0,
    ),
    "with the state of its sender, which makes another share of that name": (
        CHOOSING,
        2,
        [{**UNHEARD, "at_round": 2, "kind": "data"}, {**LOST, "at": "45.5ms"}],
        1.25,
    ),
    "given up before its sender makes another share of that name": (
        CHOOSING,
        0,
        [{**UNHEARD, "at_round": 2, "kind": "data"}, {**LOST, "at": "60ms"}],
        1.25,
    ),
}
"""Where one share is, in which fleet and by which events, and what is missing in all."""


@pytest.mark.parametrize("name", FATES)
def test_result_and_memory_count_what_is_missing(name: str, tmp_path: Path) -> None:
    plain, again, events, missing = FATES[name]
    scenario = load({**plain, "delivery": attempts(again)["delivery"], "events": events})
    play = Player(scenario).play()
    assert play.end.weight is not None
    assert (scenario.num_nodes - play.end.weight, lost_weight(play.run.rows)) == (missing, missing)
    result = run(scenario, out=tmp_path / "run", page=False).result
    in_states = sum(each.get("lost_weight") or 0 for each in result["restarts"])
    assert result["given_up"]["lost_weight"] + in_states == missing
