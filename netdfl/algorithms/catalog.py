"""The algorithms by name. Importing this file is cheap, so that a scenario is checked in a moment.

The parts, and torch with them, are imported when an algorithm is built.
"""

from __future__ import annotations

from functools import partial

from netdfl.algorithms import (
    bilateral,
    central,
    compressed,
    directed,
    fitness,
    overlap,
    synthetic,
    undirected,
)
from netdfl.algorithms.base import Catalog, Entry
from netdfl.algorithms.exchange import flat

DOUBLY = frozenset({"doubly", "row"})
COLUMN = frozenset({"doubly", "column"})
SERVER = frozenset({"server"})
_distilling = partial(
    Entry, family="server", needs=SERVER, fits=fitness.distils, warns=fitness.never_distils, extrapolates=True
)


ALGORITHMS: Catalog = {
    "dpsgd": Entry(
        flat(undirected.dpsgd),
        "gossip",
        DOUBLY,
        "Lian et al. 2017; DFedSAM",
        fits=fitness.one_optimizer,
        warns=fitness.nesterov_acts,
    ),
    "lian_dpsgd": Entry(flat(undirected.lian_dpsgd), "gossip", DOUBLY, "Lian et al. 2017", counterpart="choco_sgd"),
    "dfedavg": Entry(flat(undirected.dfedavg), "gossip", DOUBLY, "Sun, Li, Wang 2022"),
    "dfedavgm": Entry(flat(undirected.dfedavgm), "gossip", DOUBLY, "Sun, Li, Wang 2022"),
    "dfedsam": Entry(flat(undirected.dfedsam), "gossip", DOUBLY, "DFedSAM"),
    "dfedsam_mgs": Entry(flat(undirected.dfedsam_mgs), "gossip", DOUBLY, "DFedSAM"),
    "oledfl_sgd": Entry(
        flat(undirected.oledfl_sgd), "gossip", DOUBLY, "OledFL", fits=fitness.ole_is_stable, extrapolates=True
    ),
    "oledfl_sam": Entry(
        flat(undirected.oledfl_sam), "gossip", DOUBLY, "OledFL", fits=fitness.ole_is_stable, extrapolates=True
    ),
    "qg_dsgdm": Entry(flat(undirected.qg_dsgdm), "gossip", DOUBLY, "Lin et al. 2021"),
    "choco_sgd": Entry(flat(compressed.choco_sgd), "gossip", DOUBLY, "Koloskova et al. 2019", scheme="choco"),
    "deepsqueeze": Entry(flat(compressed.deepsqueeze), "gossip", DOUBLY, "Tang et al. 2019", scheme="deepsqueeze"),
    "delicoco": Entry(flat(compressed.delicoco), "gossip", DOUBLY, "Hashemi et al. 2022", scheme="choco"),
    "qdfedavgm": Entry(
        flat(compressed.qdfedavgm), "gossip", DOUBLY, "Sun, Li, Wang 2022", scheme="choco", literal=("form", "literal")
    ),
    "sgp": Entry(
        flat(directed.sgp),
        "gossip",
        COLUMN,
        "Assran et al. 2019; DFedSGPSM",
        fits=fitness.one_optimizer,
        warns=fitness.nesterov_acts,
    ),
    "osgp": Entry(flat(directed.osgp), "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpm": Entry(flat(directed.dfedsgpm), "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpsm": Entry(flat(directed.dfedsgpsm), "gossip", COLUMN, "DFedSGPSM"),
    "dfedsgpsm_s": Entry(flat(directed.dfedsgpsm_s), "gossip", COLUMN, "DFedSGPSM", fits=fitness.chooses, selects=True),
    "overlap_sgp": Entry(flat(overlap.overlap_sgp), "overlap", COLUMN, "Assran et al. 2019"),
    "asyng": Entry(flat(overlap.asyng), "overlap", COLUMN, "Chen et al. 2023; DFedSGPSM"),
    "dispfl": Entry(flat(undirected.dispfl), "gossip", DOUBLY, "Dai et al. 2022", sparse=True),
    "slowmo": Entry(
        flat(undirected.slowmo),
        "gossip",
        DOUBLY | {"average"},
        "Wang et al. 2020",
        fits=fitness.averages_exactly,
        warns=fitness.slow_rounds,
        extrapolates=True,
    ),
    "ad_psgd": Entry(
        flat(bilateral.ad_psgd),
        "bilateral",
        frozenset({"both_ways"}),
        "Lian et al. 2018",
        fits=fitness.pairs_can_meet,
    ),
    "fedavg": Entry(flat(central.fedavg), "server", SERVER, "McMahan et al. 2017"),
    "fedsam": Entry(flat(central.fedsam), "server", SERVER, "Qu et al. 2022"),
    "mofedsam": Entry(flat(central.mofedsam), "server", SERVER, "Qu et al. 2022", tells=True),
    "scaffold": Entry(
        flat(central.scaffold), "server", SERVER, "Karimireddy et al. 2020", adds_up=True, remembers=True
    ),
    "fedgamma": Entry(flat(central.fedgamma), "server", SERVER, "Dai et al. 2023", adds_up=True, remembers=True),
    "feddyn": Entry(flat(central.feddyn), "server", SERVER, "Acar et al. 2021", remembers=True, extrapolates=True),
    "fedsmoo": Entry(
        flat(central.fedsmoo), "server", SERVER, "Sun et al. 2023", adds_up=True, remembers=True, extrapolates=True
    ),
    "fedlesam": Entry(flat(central.fedlesam), "server", SERVER, "Fan et al. 2024"),
    "fedlesam_s": Entry(flat(central.fedlesam_s), "server", SERVER, "Fan et al. 2024", adds_up=True, remembers=True),
    "fedlesam_d": Entry(
        flat(central.fedlesam_d), "server", SERVER, "Fan et al. 2024", remembers=True, extrapolates=True
    ),
    "dynafed": _distilling(flat(synthetic.dynafed), source="Pi et al. 2023", augments=True),
    "dynafed_synonly": _distilling(flat(synthetic.dynafed_synonly), source="Pi et al. 2023; FedSynSAM", augments=True),
    "fedsynsam": _distilling(flat(synthetic.fedsynsam), source="FedSynSAM"),
}
