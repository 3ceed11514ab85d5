"""A node that is dismissed at the moment in which its control stream is welcomed is heard no more."""

from __future__ import annotations

from typing import Any

import pytest

from netdfl.core.control import Hello, Progress
from tests.transport.grpc_fleet import until
from tests.transport.test_control import Node, Supervisor


async def test_who_is_dismissed_while_it_is_welcomed_is_heard_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, node = Supervisor(), Node()
    welcome = supervisor.server._welcome

    async def welcomed_late(*args: Any) -> Hello:
        hello = await welcome(*args)
        supervisor.server.dismiss(3, 0)
        return hello

    monkeypatch.setattr(supervisor.server, "_welcome", welcomed_late)
    client = await node.attend(await supervisor.server.start(), 3)
    client.report(Progress(round=1))
    await until(lambda: bool(node.lost))
    assert supervisor.reports == []
    await client.aclose()
    await supervisor.server.aclose()
