"""Reports of a client that come together are read in their order."""

from __future__ import annotations

import pytest
import torch

from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.types import Inbox, Kind, Message, Role, View
from netdfl.mixing.averaging import Averaging
from netdfl.mixing.compressed.references import Differences
from netdfl.mixing.compressed.server import CompressedReports
from netdfl.training.base import Received, Update

X = torch.tensor([1.0, -2.0, 0.5, 4.0], dtype=torch.float64)
Y = torch.tensor([3.0, 0.0, -1.5, 1.0], dtype=torch.float64)
AT = View(0, 0, 3, (1, 2), (1, 2), 0.5, {1: 0.25, 2: 0.25}, {1: 0.25, 2: 0.25})


@pytest.mark.parametrize("late", [False, True])
def test_of_a_clients_reports_that_come_together_the_last_is_what_it_means(late: bool) -> None:
    top = COMPRESSORS["top_k"](count=2)
    server = CompressedReports(inner=Averaging(), differences=Differences(compressor=top), feedback="ef21")
    client = AT._replace(node=1, role=Role.CLIENT, out_neighbors=(0,))
    state, sent = server.init_client(X, client), list[Message]()
    for round in range(2):
        at = client._replace(round=round)
        state, outbox, _, _ = server.report_from(state, Update(X, X + Y), Received(), at)
        sent.append(Message(1, 0, Kind.DATA, 0, round, 1, 0, outbox[0]))
    hub = server.init_server(X, AT)
    differences, heard = server._decode(hub.heard, Inbox(sent if late else sent[:1]), AT, X)
    if late:
        assert torch.equal(differences[1], state.memory.vector)
        assert heard.copies[1].version == 2
    else:
        assert int((differences[1] != 0).sum()) == 2
