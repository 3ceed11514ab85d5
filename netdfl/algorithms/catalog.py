"""The algorithms by name. Importing this file is cheap, so that a scenario is checked in a moment.

The parts, and torch with them, are imported when an algorithm is built.
"""

from __future__ import annotations

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
from netdfl.algorithms.base import Catalog, Entry

DOUBLY = frozenset({"doubly", "row"})
COLUMN = frozenset({"doubly", "column"})
SERVER = frozenset({"server"})

ALGORITHMS: Catalog = {
    "dpsgd": Entry(build=undirected.dpsgd, family="gossip", needs=DOUBLY, source="Lian et al. 2017; DFedSAM"),
    "lian_dpsgd": Entry(build=undirected.lian_dpsgd, family="gossip", needs=DOUBLY, source="Lian et al. 2017"),
    "dfedavg": Entry(build=undirected.dfedavg, family="gossip", needs=DOUBLY, source="Sun, Li, Wang 2022"),
    "dfedavgm": Entry(build=undirected.dfedavgm, family="gossip", needs=DOUBLY, source="Sun, Li, Wang 2022"),
    "dfedsam": Entry(build=undirected.dfedsam, family="gossip", needs=DOUBLY, source="DFedSAM"),
    "dfedsam_mgs": Entry(build=undirected.dfedsam_mgs, family="gossip", needs=DOUBLY, source="DFedSAM"),
    "oledfl_sgd": Entry(
        build=undirected.oledfl_sgd, family="gossip", needs=DOUBLY, source="OledFL", fits=fitness.ole_is_stable
    ),
    "oledfl_sam": Entry(
        build=undirected.oledfl_sam, family="gossip", needs=DOUBLY, source="OledFL", fits=fitness.ole_is_stable
    ),
    "qg_dsgdm": Entry(build=undirected.qg_dsgdm, family="gossip", needs=DOUBLY, source="Lin et al. 2021"),
    "choco_sgd": Entry(build=compressed.choco_sgd, family="gossip", needs=DOUBLY, source="Koloskova et al. 2019"),
    "deepsqueeze": Entry(build=compressed.deepsqueeze, family="gossip", needs=DOUBLY, source="Tang et al. 2019"),
    "delicoco": Entry(build=compressed.delicoco, family="gossip", needs=DOUBLY, source="Hashemi et al. 2022"),
    "qdfedavgm": Entry(build=compressed.qdfedavgm, family="gossip", needs=DOUBLY, source="Sun, Li, Wang 2022"),
    "sgp": Entry(build=directed.sgp, family="gossip", needs=COLUMN, source="Assran et al. 2019; DFedSGPSM"),
    "osgp": Entry(build=directed.osgp, family="gossip", needs=COLUMN, source="DFedSGPSM"),
    "dfedsgpm": Entry(build=directed.dfedsgpm, family="gossip", needs=COLUMN, source="DFedSGPSM"),
    "dfedsgpsm": Entry(build=directed.dfedsgpsm, family="gossip", needs=COLUMN, source="DFedSGPSM"),
    "dfedsgpsm_s": Entry(build=directed.dfedsgpsm_s, family="gossip", needs=COLUMN, source="DFedSGPSM", selects=True),
    "overlap_sgp": Entry(build=overlap.overlap_sgp, family="overlap", needs=COLUMN, source="Assran et al. 2019"),
    "asyng": Entry(build=overlap.asyng, family="overlap", needs=COLUMN, source="Chen et al. 2023; DFedSGPSM"),
    "dispfl": Entry(build=sparse.dispfl, family="gossip", needs=DOUBLY, source="Dai et al. 2022"),
    "slowmo": Entry(
        build=slow.slowmo,
        family="gossip",
        needs=DOUBLY | {"average"},
        source="Wang et al. 2020",
        fits=fitness.averages_exactly,
    ),
    "ad_psgd": Entry(
        build=bilateral.ad_psgd,
        family="bilateral",
        needs=frozenset({"both_ways"}),
        source="Lian et al. 2018",
        fits=fitness.pairs_can_meet,
    ),
    "fedavg": Entry(build=central.fedavg, family="server", needs=SERVER, source="McMahan et al. 2017"),
    "fedsam": Entry(build=central.fedsam, family="server", needs=SERVER, source="Qu et al. 2022"),
    "mofedsam": Entry(build=central.mofedsam, family="server", needs=SERVER, source="Qu et al. 2022"),
    "scaffold": Entry(build=central.scaffold, family="server", needs=SERVER, source="Karimireddy et al. 2020"),
    "fedgamma": Entry(build=central.fedgamma, family="server", needs=SERVER, source="Dai et al. 2023"),
    "feddyn": Entry(build=corrected.feddyn, family="server", needs=SERVER, source="Acar et al. 2021"),
    "fedsmoo": Entry(build=corrected.fedsmoo, family="server", needs=SERVER, source="Sun et al. 2023"),
    "fedlesam": Entry(build=corrected.fedlesam, family="server", needs=SERVER, source="Fan et al. 2024"),
    "fedlesam_s": Entry(build=corrected.fedlesam_s, family="server", needs=SERVER, source="Fan et al. 2024"),
    "fedlesam_d": Entry(build=corrected.fedlesam_d, family="server", needs=SERVER, source="Fan et al. 2024"),
    "dynafed": Entry(build=synthetic.dynafed, family="server", needs=SERVER, source="Pi et al. 2023"),
    "dynafed_synonly": Entry(
        build=synthetic.dynafed_synonly, family="server", needs=SERVER, source="Pi et al. 2023; FedSynSAM"
    ),
    "fedsynsam": Entry(build=synthetic.fedsynsam, family="server", needs=SERVER, source="FedSynSAM"),
}
