"""How the spectrum of many nodes is found, and how far that goes."""

from __future__ import annotations

import numpy as np
import pytest

from netdfl.core.rng import Streams
from netdfl.topology import spectrum
from netdfl.topology.catalog import TOPOLOGIES, WEIGHTS
from netdfl.topology.network import Network
from netdfl.topology.spectrum import eigenvalues


@pytest.mark.parametrize(("kind", "weights"), [("grid", "auto"), ("star", "uniform"), ("exponential", "auto")])
def test_many_nodes_outermost_eigenvalues_come_from_a_few_steps(
    kind: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network(TOPOLOGIES[kind](144, Streams(11)), WEIGHTS[weights])
    exact = eigenvalues(net.weights(net.graph(0)))
    monkeypatch.setattr("netdfl.topology.spectrum._DENSE", 0)
    monkeypatch.setattr("netdfl.topology.spectrum._KRYLOV", 60)
    found = eigenvalues(net.weights(net.graph(0)))
    assert len(found) <= 60
    for outermost in (np.min, np.max):
        assert outermost(found.real) == pytest.approx(outermost(exact.real), abs=1e-6)
    assert np.abs(found.imag).max() == pytest.approx(np.abs(exact.imag).max(), abs=1e-6)


def test_of_more_than_512_nodes_the_spectrum_is_found_in_at_most_200_steps() -> None:
    assert (spectrum._DENSE, spectrum._KRYLOV, spectrum._TOLERANCE) == (512, 200, 1e-9)
