"""What an entry says of how nodes return is in the event of their restart, whichever entry it is, or is refused."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.rng import Streams
from netdfl.links.schedule.compile import ScheduleError, compile_events
from netdfl.links.schedule.when import Facts

ENTRIES: dict[str, tuple[dict[str, Any], ...]] = {
    "crash": ({"at": "1s", "crash": 1, "restart_after": "2s"},),
    "restart": ({"at": "1s", "crash": 1}, {"at": "3s", "restart": 1}),
    "churn": ({"from": "0s", "to": "60s", "churn": [1], "up": "5s", "down": "2s"},),
}
TOLD = ["", "kept", "lost"]


@pytest.mark.parametrize("action", ENTRIES)
@pytest.mark.parametrize("state", TOLD)
@pytest.mark.parametrize("weight", [None, 0, 1])
@pytest.mark.parametrize("rejoin", [None, "catch_up", "replay"])
def test_a_return_is_as_its_entry_says(action: str, state: str, weight: int | None, rejoin: str | None) -> None:
    said = {"state": state or None, "rejoin_weight": weight, "rejoin": rejoin}
    *before, last = ENTRIES[action]
    entries = [*before, last | {key: value for key, value in said.items() if value is not None}]
    facts = Facts(4, Streams(7), {}, 100 * 10**9, 50)
    wrong = (weight is not None and state != "lost") or (rejoin is not None and state == "lost")
    if wrong:
        with pytest.raises(ScheduleError, match=r"^.*rejoin(_weight)? is for nodes that"):
            compile_events(entries, facts)
        return
    events = compile_events(entries, facts)
    returns = [event.parameters for event in events if event.action == "restart"]
    expected = {key: value for key, value in (said | {"state": state or "kept"}).items() if value is not None}
    assert returns
    assert all(each == expected for each in returns)
    if action != "restart":
        assert {event.parameters["state"] for event in events if event.action == "crash"} == {state or "kept"}


@pytest.mark.parametrize(("rounds", "fits"), [(None, True), (13, True), (12, False)])
def test_a_listed_message_is_of_a_round_of_the_run_where_that_is_known(rounds: int | None, fits: bool) -> None:
    loss = {"model": "drop_list", "messages": [{"round": 3}, {"round": 12}]}
    facts = Facts(4, Streams(7), {}, 100 * 10**9, rounds)
    entry = {"at": "1s", "link": "0->1", "loss": loss}
    if fits:
        assert len(compile_events([entry], facts)) == 1
    else:
        with pytest.raises(ScheduleError, match="names round 12, and rounds are 0 to 11"):
            compile_events([entry], facts)
