"""Control variates that are compressed on their way to the server: both ends add what was said."""

from __future__ import annotations

import pytest
import torch
from compressed_server import controls

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.catalog import COMPRESSORS


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("extras", ["exact", "compressed"])
def test_the_servers_control_stays_the_mean_of_the_clients(extras: str, participation: float) -> None:
    server, clients = controls(extras, 12, participation, fraction=0.2)  # type: ignore[arg-type]
    mean = torch.stack([client.local.inner.control for client in clients]).mean(0)
    assert float(mean.norm()) > 1e-3
    torch.testing.assert_close(server.mixing.inner.inner.vector, mean, rtol=0, atol=1e-12)


def test_a_client_keeps_of_a_change_what_the_server_was_told() -> None:
    _, clients = controls("compressed", 1, fraction=0.2)
    for client in clients:
        assert int((client.local.inner.control != 0).sum()) == 4
        assert int((client.received.unsaid["control"] != 0).sum()) == 16


def test_compressed_by_identity_is_exact_bit_for_bit() -> None:
    one, two = (controls(extras, 6, compressor="identity")[0] for extras in ("exact", "compressed"))  # type: ignore[arg-type]
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.mixing.inner.inner.vector, two.mixing.inner.inner.vector)


def test_the_server_and_a_client_of_fedsmoo_have_the_same_dual() -> None:
    server, clients = controls("compressed", 12, 0.5, method="fedsmoo", fraction=0.2)
    told = server.mixing.inner.inner.duals
    assert sorted(told) == list(range(len(clients)))
    for node, client in enumerate(clients):
        dual = client.local.inner.dual
        assert float(dual.norm()) > 1e-3
        torch.testing.assert_close(told[node], dual, rtol=0, atol=1e-12)


def test_fedsmoo_by_changes_in_full_is_fedsmoo() -> None:
    by_values = controls("exact", 12, 0.5, "identity", "fedsmoo")[0]
    by_changes = controls("compressed", 12, 0.5, "identity", "fedsmoo")[0]
    torch.testing.assert_close(by_changes.x, by_values.x, rtol=0, atol=1e-12)
    torch.testing.assert_close(by_changes.mixing.inner.inner.shared, by_values.mixing.inner.inner.shared)
    assert not by_values.mixing.inner.inner.duals


def test_the_methods_that_may_are_those_whose_server_adds_up() -> None:
    exchange = Exchange(compressor=COMPRESSORS["top_k"](fraction=0.1), extras="compressed")
    servers = [name for name, entry in ALGORITHMS.items() if entry.family == "server"]
    for name in servers:
        if ALGORITHMS[name].adds_up:
            assert ALGORITHMS[name].build(exchange).mixing.said == (("dual",) if name == "fedsmoo" else ("control",))
        else:
            with pytest.raises(ValueError, match="adds up"):
                ALGORITHMS[name].build(exchange)
