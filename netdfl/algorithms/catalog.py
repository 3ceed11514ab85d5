"""The algorithms by name. Importing this file is cheap, so that a scenario is checked in a moment.

The parts, and torch with them, are imported when an algorithm is built.
"""

from __future__ import annotations

from collections.abc import Callable

from netdfl.algorithms import (
    bilateral,
    central,
    compressed,
    corrected,
    directed,
    fitness,
    overlap,
    slow,
    sparse,
    synthetic,
    undirected,
)
from netdfl.algorithms.base import Algorithm, Catalog, Entry, FamilyName
from netdfl.algorithms.fitness import Fits, Warns
from netdfl.algorithms.parameters import flat

DOUBLY = frozenset({"doubly", "row"})
COLUMN = frozenset({"doubly", "column"})
SERVER = frozenset({"server"})


def _entry(
    function: Callable[..., Algorithm],
    family: FamilyName,
    needs: frozenset[str],
    source: str,
    *,
    fits: Fits | None = None,
    warns: Warns | None = None,
    selects: bool = False,
    catches_up: bool = True,
) -> Entry:
    build = flat(function)
    return Entry(
        build=build,
        family=family,
        needs=needs,
        source=source,
        fits=fits,
        warns=warns,
        selects=selects,
        catches_up=catches_up,
    )


ALGORITHMS: Catalog = {
    "dpsgd": _entry(undirected.dpsgd, "gossip", DOUBLY, "Lian et al. 2017; DFedSAM", warns=fitness.nesterov_acts),
    "lian_dpsgd": _entry(undirected.lian_dpsgd, "gossip", DOUBLY, "Lian et al. 2017"),
    "dfedavg": _entry(undirected.dfedavg, "gossip", DOUBLY, "Sun, Li, Wang 2022"),
    "dfedavgm": _entry(undirected.dfedavgm, "gossip", DOUBLY, "Sun, Li, Wang 2022"),
    "dfedsam": _entry(undirected.dfedsam, "gossip", DOUBLY, "DFedSAM"),
    "dfedsam_mgs": _entry(undirected.dfedsam_mgs, "gossip", DOUBLY, "DFedSAM"),
    "oledfl_sgd": _entry(undirected.oledfl_sgd, "gossip", DOUBLY, "OledFL", fits=fitness.ole_is_stable),
    "oledfl_sam": _entry(undirected.oledfl_sam, "gossip", DOUBLY, "OledFL", fits=fitness.ole_is_stable),
    "qg_dsgdm": _entry(undirected.qg_dsgdm, "gossip", DOUBLY, "Lin et al. 2021"),
    "choco_sgd": _entry(compressed.choco_sgd, "gossip", DOUBLY, "Koloskova et al. 2019"),
    "deepsqueeze": _entry(compressed.deepsqueeze, "gossip", DOUBLY, "Tang et al. 2019"),
    "delicoco": _entry(compressed.delicoco, "gossip", DOUBLY, "Hashemi et al. 2022"),
    "qdfedavgm": _entry(compressed.qdfedavgm, "gossip", DOUBLY, "Sun, Li, Wang 2022"),
    "sgp": _entry(directed.sgp, "gossip", COLUMN, "Assran et al. 2019; DFedSGPSM", warns=fitness.nesterov_acts),
    "osgp": _entry(directed.osgp, "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpm": _entry(directed.dfedsgpm, "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpsm": _entry(directed.dfedsgpsm, "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpsm_s": _entry(directed.dfedsgpsm_s, "gossip", COLUMN, "DFedSGPSM", fits=fitness.chooses, selects=True),
    "overlap_sgp": _entry(overlap.overlap_sgp, "overlap", COLUMN, "Assran et al. 2019"),
    "asyng": _entry(overlap.asyng, "overlap", COLUMN, "Chen et al. 2023; DFedSGPSM"),
    "dispfl": _entry(sparse.dispfl, "gossip", DOUBLY, "Dai et al. 2022"),
    "slowmo": _entry(
        slow.slowmo,
        "gossip",
        DOUBLY | {"average"},
        "Wang et al. 2020",
        fits=fitness.averages_exactly,
        warns=fitness.slow_rounds,
    ),
    "ad_psgd": _entry(
        bilateral.ad_psgd,
        "bilateral",
        frozenset({"both_ways"}),
        "Lian et al. 2018",
        fits=fitness.pairs_can_meet,
        catches_up=False,
    ),
    "fedavg": _entry(central.fedavg, "server", SERVER, "McMahan et al. 2017"),
    "fedsam": _entry(central.fedsam, "server", SERVER, "Qu et al. 2022"),
    "mofedsam": _entry(central.mofedsam, "server", SERVER, "Qu et al. 2022"),
    "scaffold": _entry(central.scaffold, "server", SERVER, "Karimireddy et al. 2020"),
    "fedgamma": _entry(central.fedgamma, "server", SERVER, "Dai et al. 2023"),
    "feddyn": _entry(corrected.feddyn, "server", SERVER, "Acar et al. 2021"),
    "fedsmoo": _entry(corrected.fedsmoo, "server", SERVER, "Sun et al. 2023"),
    "fedlesam": _entry(corrected.fedlesam, "server", SERVER, "Fan et al. 2024"),
    "fedlesam_s": _entry(corrected.fedlesam_s, "server", SERVER, "Fan et al. 2024"),
    "fedlesam_d": _entry(corrected.fedlesam_d, "server", SERVER, "Fan et al. 2024"),
    "dynafed": _entry(
        synthetic.dynafed, "server", SERVER, "Pi et al. 2023", fits=fitness.distils, warns=fitness.never_distils
    ),
    "dynafed_synonly": _entry(
        synthetic.dynafed_synonly,
        "server",
        SERVER,
        "Pi et al. 2023; FedSynSAM",
        fits=fitness.distils,
        warns=fitness.never_distils,
    ),
    "fedsynsam": _entry(
        synthetic.fedsynsam, "server", SERVER, "FedSynSAM", fits=fitness.distils, warns=fitness.never_distils
    ),
}
