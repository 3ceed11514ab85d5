"""The gRPC transport keeps the contract of transports, and its own of peers that come, go and lie."""

from __future__ import annotations

import pytest
from grpc_fleet import OPTIONS, connect, grpc_fleet, make

from netdfl.testing.transports import TRANSPORT_CHECKS


@pytest.mark.parametrize("check", TRANSPORT_CHECKS)
async def test_conformance(check):
    await check(grpc_fleet)
