"""The kernel's engine: what it is told, what it refuses, and its wiring, with a plain queue where netem is missing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from netdfl.core.errors import MachineError
from netdfl.core.rng import Streams
from netdfl.links.schedule.active_changes import EffectiveValue
from netdfl.links.schedule.compile import compile_events
from netdfl.links.schedule.when import Facts
from netdfl.links.spec import LINK_KEYS, LinksSpec, choose
from netdfl.packets import netem
from netdfl.packets.netns import leave_host
from tests.namespaces.udp_probe import Probe

pytest.importorskip("pyroute2")


def values(**rules: Any) -> dict[str, EffectiveValue]:
    spec = LinksSpec({"default": rules}, {}, 2).link((0, 1))
    return {key: EffectiveValue(getattr(spec, key)) for key in LINK_KEYS}


def test_a_links_rules_become_one_netem() -> None:
    found = netem.leaf(values(latency="20ms", loss=0.05, rate="10Mbit", duplicate=0.01))
    assert found == {
        "kind": "netem",
        "delay": 20_000,
        "loss": 5.0,
        "duplicate": 1.0,
        "rate": 1_250_000,
        "limit": netem.LIMIT,
    }


def test_a_link_that_is_down_loses_everything_and_a_factor_counts() -> None:
    down = {**values(loss=0.05), "state": EffectiveValue("down_drop")}
    assert netem.leaf(down)["loss"] == 100
    halved, doubled = EffectiveValue(choose("rate", "10Mbit"), 0.5), EffectiveValue(choose("latency", "8ms"), 2)
    slower = {**values(), "rate": halved, "latency": doubled}
    assert (netem.leaf(slower)["rate"], netem.leaf(slower)["delay"]) == (625_000, 16_000)


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ({"latency": {"dist": "lognormal", "mean": "20ms", "jitter": "5ms"}}, "latency"),
        ({"loss": {"model": "gilbert_elliott", "p": 0.1, "r": 0.5}}, "bursts"),
        ({"corrupt": 0.1}, "corrupt"),
        ({"reorder": 0.1}, "reorder"),
        ({"rate": {"rate": "1Mbit", "burst": "10KiB"}}, "burst"),
    ],
)
def test_what_netem_has_not_is_named(rules: dict[str, Any], named: str) -> None:
    spec = LinksSpec({"default": rules}, {}, 2)
    assert named in netem.unfit(spec, [(0, 1), (1, 0)], [])


def test_what_the_schedule_makes_of_a_link_counts_too() -> None:
    facts, spec = Facts(2, Streams(1)), LinksSpec({}, {}, 2)
    fine = compile_events([{"at": "1s", "link": "0->1", "latency": "x2", "loss": 0.1}], facts)
    bursts = {"model": "gilbert_elliott", "p": 0.1, "r": 0.5}
    bad = compile_events([{"at": "1s", "link": "0->1", "loss": bursts}], facts)
    assert netem.unfit(spec, [(0, 1)], fine) == ""
    assert "bursts" in netem.unfit(spec, [(0, 1)], bad)


def test_the_wiring_carries_each_direction_by_its_own_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue of no packets stands for a link that is down: what it stops is that one direction alone."""

    def queue(rules: dict[str, EffectiveValue]) -> dict[str, Any]:
        return {"kind": "pfifo", "limit": 0 if rules["state"].value != "up" else 1000}

    monkeypatch.setattr(netem, "leaf", queue)
    spec = LinksSpec({"0->1": {"state": "down_drop"}, "2": {"uplink": "50Mbit", "downlink": "50Mbit"}}, {}, 3)
    came, counts = {}, {}

    def run() -> None:
        leave_host()
        engine = netem.Netem(spec, [], 3, "reno")
        for edge in ((0, 1), (1, 0), (0, 2), (2, 1)):
            probe = Probe(engine, *edge)  # type: ignore[arg-type]
            probe.burst(20)
            came[edge] = len(probe.came)
        counts.update(engine.counts())
        engine.close()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert came == {(0, 1): 0, (1, 0): 20, (0, 2): 20, (2, 1): 20}
    assert counts["edges"]["2->1"]["delivered"] >= 20
    assert counts["edges"]["0->1"]["dropped"]["kernel"] >= 20


def test_what_the_kernel_refuses_is_one_line() -> None:
    from pyroute2 import NetlinkError

    with pytest.raises(MachineError, match=r"refuses a link .*File exists.*world.engine: tun"), netem.refusals():
        raise NetlinkError(17, "File exists")
