"""A node that the first one cannot reach is told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from netdfl.core.errors import MachineError
from netdfl.scenario.build import compile_schedule
from netdfl.scenario.load import loads
from netdfl.standalone.request import Request
from netdfl.standalone.start import StartNegotiation
from netdfl.transport.control.rendezvous import READY, Answer, Rendezvous, Reply
from netdfl.transport.security.identity import Identity

SCENARIO = """
schema: netdfl/1
name: by-hand
nodes: 3
rounds: 9
task: {kind: consensus, dim: 4}
algorithm: dpsgd
topology: full
events: [{at_round: 2, crash: 1}]
"""

NOBODY = {0: "localhost:1", 1: "localhost:2", 2: "localhost:3"}


def start(folder: Path, node: int = 1) -> StartNegotiation:
    scenario = loads(SCENARIO)
    request = Request(
        scenario=scenario,
        node=node,
        host="127.0.0.1",
        port=4,
        peers=NOBODY,
        directory=folder,
        start_timeout_ns=200_000_000,
    )
    return StartNegotiation(request, "h", compile_schedule(scenario))


async def test_a_node_that_the_first_cannot_reach_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first node has heard of all, so that none is missing, and does not start."""
    gathering = start(tmp_path)
    answered = Reply(Answer(run_id=bytes(8), phase=READY), 1, None)

    async def ask(peer: int, meeting: Rendezvous | None = None, run_id: bytes = b"") -> Reply:
        return answered

    monkeypatch.setattr(gathering, "_ask", ask)
    words = r"node 0 \(localhost:1\) has heard of all nodes .* this node can be reached from there, at localhost:2"
    with pytest.raises(MachineError, match=words):
        await gathering.agree(Rendezvous(Identity(1, 0, bytes(8), "h"), NOBODY), [], again=False)
