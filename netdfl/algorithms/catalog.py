"""The algorithms by name. Importing this file is cheap, so that a scenario is checked quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from netdfl.algorithms import bilateral, central, compressed, directed, fitness, overlap, synthetic, undirected
from netdfl.algorithms.base import Catalog, Entry
from netdfl.algorithms.exchange import flat

DOUBLY = frozenset({"doubly", "row"})
COLUMN = frozenset({"doubly", "column"})
_gossip = partial(Entry, family="gossip", needs=DOUBLY)
_push_sum = partial(Entry, family="gossip", needs=COLUMN)
_overlapping = partial(Entry, family="overlap", needs=COLUMN)
_server = partial(Entry, family="server", needs=frozenset({"server"}))
_distilling = partial(_server, fits=fitness.distils, warns=fitness.never_distils, extrapolates=True)

_ROWS = (
    _gossip(
        undirected.dpsgd, source="Lian et al. 2017; DFedSAM", fits=fitness.one_optimizer, warns=fitness.nesterov_acts
    ),
    _gossip(undirected.lian_dpsgd, source="Lian et al. 2017", counterpart="choco_sgd"),
    _gossip(undirected.dfedavg, source="Sun, Li, Wang 2022"),
    _gossip(undirected.dfedavgm, source="Sun, Li, Wang 2022"),
    _gossip(undirected.dfedsam, source="DFedSAM"),
    _gossip(undirected.dfedsam_mgs, source="DFedSAM"),
    _gossip(undirected.oledfl_sgd, source="OledFL", fits=fitness.ole_is_stable, extrapolates=True),
    _gossip(undirected.oledfl_sam, source="OledFL", fits=fitness.ole_is_stable, extrapolates=True),
    _gossip(undirected.qg_dsgdm, source="Lin et al. 2021"),
    _gossip(compressed.choco_sgd, source="Koloskova et al. 2019", scheme="choco"),
    _gossip(compressed.deepsqueeze, source="Tang et al. 2019", scheme="deepsqueeze"),
    _gossip(compressed.delicoco, source="Hashemi et al. 2022", scheme="choco"),
    _gossip(compressed.qdfedavgm, source="Sun, Li, Wang 2022", scheme="choco", literal=("form", "literal")),
    _push_sum(
        directed.sgp, source="Assran et al. 2019; DFedSGPSM", fits=fitness.one_optimizer, warns=fitness.nesterov_acts
    ),
    _push_sum(directed.osgp, source="DFedSGPSM"),
    _push_sum(directed.dfedsgpm, source="DFedSGPSM"),
    _push_sum(directed.dfedsgpsm, source="DFedSGPSM"),
    _push_sum(directed.dfedsgpsm_s, source="DFedSGPSM", fits=fitness.chooses, selects=True),
    _overlapping(overlap.overlap_sgp, source="Assran et al. 2019"),
    _overlapping(overlap.asyng, source="Chen et al. 2023; DFedSGPSM"),
    _gossip(undirected.dispfl, source="Dai et al. 2022", sparse=True),
    _gossip(
        undirected.slowmo,
        needs=DOUBLY | {"average"},
        source="Wang et al. 2020",
        fits=fitness.averages_exactly,
        warns=fitness.slow_rounds,
        extrapolates=True,
    ),
    Entry(bilateral.ad_psgd, "bilateral", frozenset({"both_ways"}), "Lian et al. 2018", fits=fitness.pairs_can_meet),
    _server(central.fedavg, source="McMahan et al. 2017"),
    _server(central.fedsam, source="Qu et al. 2022"),
    _server(central.mofedsam, source="Qu et al. 2022", tells=True),
    _server(central.scaffold, source="Karimireddy et al. 2020", adds_up=True, remembers=True),
    _server(central.fedgamma, source="Dai et al. 2023", adds_up=True, remembers=True),
    _server(central.feddyn, source="Acar et al. 2021", remembers=True, extrapolates=True),
    _server(central.fedsmoo, source="Sun et al. 2023", adds_up=True, remembers=True, extrapolates=True),
    _server(central.fedlesam, source="Fan et al. 2024"),
    _server(central.fedlesam_s, source="Fan et al. 2024", adds_up=True, remembers=True),
    _server(central.fedlesam_d, source="Fan et al. 2024", remembers=True, extrapolates=True),
    _distilling(synthetic.dynafed, source="Pi et al. 2023", augments=True),
    _distilling(synthetic.dynafed_synonly, source="Pi et al. 2023; FedSynSAM", augments=True),
    _distilling(synthetic.fedsynsam, source="FedSynSAM"),
)
ALGORITHMS: Catalog = {row.build.__name__: replace(row, build=flat(row.build)) for row in _ROWS}

BRIEFS: Mapping[str, str] = {
    "dpsgd": "one local epoch, then gossip",
    "lian_dpsgd": "one gradient step at each mixing",
    "dfedavg": "several local epochs, then gossip",
    "dfedavgm": "DFedAvg with heavy-ball momentum",
    "dfedsam": "DFedAvg with SAM's gradient",
    "dfedsam_mgs": "DFedSAM, several gossips a round",
    "oledfl_sgd": "DFedAvg, begun beyond the average",
    "oledfl_sam": "OledFL-SGD with SAM's gradient",
    "qg_dsgdm": "momentum of training and mixing",
    "choco_sgd": "compressed gossip of differences",
    "deepsqueeze": "compressed gossip, error feedback",
    "delicoco": "CHOCO, several exchanges a round",
    "qdfedavgm": "DFedAvgM, quantized differences",
    "sgp": "one local epoch, then push-sum",
    "osgp": "several epochs, then push-sum",
    "dfedsgpm": "OSGP with heavy-ball momentum",
    "dfedsgpsm": "DFedSGPM with SAM's gradient",
    "dfedsgpsm_s": "DFedSGPSM, receivers by loss",
    "overlap_sgp": "SGP that sends while it trains",
    "asyng": "push-sum with what came so far",
    "dispfl": "a sparse mask for each node",
    "slowmo": "rare averages and slow momentum",
    "ad_psgd": "pairs average at their own pace",
    "fedavg": "the server averages local models",
    "fedsam": "FedAvg with SAM's gradient",
    "mofedsam": "FedSAM with the fleet's momentum",
    "scaffold": "FedAvg with control variates",
    "fedgamma": "SCAFFOLD with SAM's gradient",
    "feddyn": "FedAvg with dynamic regularizers",
    "fedsmoo": "FedDyn with a common perturbation",
    "fedlesam": "SAM, ascent by the server's move",
    "fedlesam_s": "FedLESAM, SCAFFOLD's correction",
    "fedlesam_d": "FedLESAM with FedDyn's terms",
    "dynafed": "FedAvg, refined on distilled data",
    "dynafed_synonly": "DynaFed on distilled data alone",
    "fedsynsam": "SAM, ascent by distilled data too",
}
"""A few words about each algorithm: at most 33 letters, so that a list has a line for each at 80 columns."""
