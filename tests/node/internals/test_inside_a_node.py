"""What a node holds while it sends a reply, and what it says of a step before its first round."""

from __future__ import annotations

from netdfl.core.types import Kind, Message, Payload, StepId
from tests.node.hand import settle
from tests.node.node_desk import ME, SHARE, Desk


async def test_what_a_node_sends_beside_its_rounds_is_held_until_it_has_sent() -> None:
    desk = Desk()
    desk.node.reply(Message(1, ME, Kind.REQUEST, 0, 6, 1, 5, Payload()), SHARE)
    assert len(desk.node._background._tasks) == 1
    await settle()
    assert desk.node._background._tasks == set()


def test_a_node_that_is_made_is_done_with_no_step() -> None:
    assert Desk().node._is_step_done(1, StepId(0, 0)) is False
