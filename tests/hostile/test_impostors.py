"""Members that speak in others' names: at TLS refused and named; in plain text believed, by whoever has the secret."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.hostile.attacked import Target, run_attacked
from tests.hostile.client import STRANGERS, body_of, frame, greeting, header
from tests.hostile.table import FIGURES, Visit, assert_refused, callees, left_alone, scenario, shown_by


def test_with_tls_a_member_in_others_names_changes_nothing_and_is_named(tmp_path: Path) -> None:
    visit = Visit(list(STRANGERS))

    async def come(target: Target) -> None:
        await visit.come({"node 1": [shown_by(target, 1, callee) for callee in callees(target)]}, target)

    finished, _ = run_attacked(scenario("star", "kind: processes, tls: true"), tmp_path / "run", come)
    heard = {word for answer in visit.heard["node 1"] for word in answer.split(", ")}
    assert heard == {"not of this fleet", "refused:foreign", "Method not found!"}
    assert_refused(finished, "star", {None, 1}, visit.num_calls)
    said = [what for (what,) in finished.run.rows("SELECT details->>'what' FROM events WHERE kind = 'refused'")]
    assert all("node 1 of epoch 0" in what for what in said), said


def test_in_plain_text_whoever_has_the_secret_is_believed(tmp_path: Path) -> None:
    """So the figures of the table tell of an attack that somebody takes."""

    async def come(target: Target) -> str:
        known, caller = target.known, shown_by(target, 2, 0)
        assert await caller.hello(**greeting(known, 2)) == "accepted"
        body = body_of({"x": np.full(8, 10.0)})
        return await caller.push(*(frame(header(known, 2, round=round), body) for round in range(6)))

    finished, fates = run_attacked(scenario("gossip", "kind: processes"), tmp_path / "run", come)
    assert "delivered" in fates
    assert [finished.result[figure] for figure in FIGURES] != [left_alone("gossip")[figure] for figure in FIGURES]
