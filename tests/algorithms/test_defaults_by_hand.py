"""What the catalog says of each method, and what a part is where nothing is said of it: two tables, written by hand.

A scenario names few of these: what is left out is as the tables have it, and no check of a scenario goes by more.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import netdfl.algorithms
import netdfl.compression
import netdfl.mixing
from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Exchange
from netdfl.compression.catalog import COMPRESSORS
from netdfl.core.rng import Streams
from netdfl.mixing.compressed.gossip import DeepSqueeze
from netdfl.mixing.compressed.literal import LiteralQuantized
from netdfl.mixing.compressed.references import Differences

SAID: Mapping[str, set[str]] = {
    "selects": {"dfedsgpsm_s"},
    "sparse": {"dispfl"},
    "tells": {"mofedsam"},
    "adds_up": {"scaffold", "fedgamma", "fedsmoo", "fedlesam_s"},
    "remembers": {"scaffold", "fedgamma", "feddyn", "fedsmoo", "fedlesam_s", "fedlesam_d"},
    "augments": {"dynafed", "dynafed_synonly"},
    "extrapolates": {
        *("oledfl_sgd", "oledfl_sam", "slowmo", "feddyn", "fedsmoo", "fedlesam_d"),
        *("dynafed", "dynafed_synonly", "fedsynsam"),
    },
    "literal": {"qdfedavgm"},
    "scheme": {"choco_sgd", "deepsqueeze", "delicoco", "qdfedavgm"},
    "counterpart": {"lian_dpsgd"},
    "warns": {"dpsgd", "sgp", "slowmo", "dynafed", "dynafed_synonly", "fedsynsam"},
    "fits": {
        *("dpsgd", "sgp", "oledfl_sgd", "oledfl_sam", "dfedsgpsm_s", "slowmo", "ad_psgd"),
        *("dynafed", "dynafed_synonly", "fedsynsam"),
    },
}
NEEDS = {
    "doubly": {"gossip", "overlap"},
    "row": {"gossip"},
    "column": {"gossip", "overlap"},
    "average": {"gossip"},
    "both_ways": {"bilateral"},
    "server": {"server"},
}
PUSH_SUM = {"sgp", "osgp", "dfedsgpm", "dfedsgpsm", "dfedsgpsm_s", "overlap_sgp", "asyng"}
SGD = {"lr": 0.1, "lr_decay": 1.0, "local_epochs": 5, "local_steps": None, "weight_decay": 0.0, "clip_norm": None}
STREAMS = "streams of seed 0"
DISTILLATION = {"server_lr": 1.0, "per_class": 20, "distil_loss": "normalised", "input_lr": 0.05, "rate_lr": 1e-5}
REFERENCE = {"version": 0, "mark": 0}
ROWS, SHARES = {"steps": 1, "push": False}, {"steps": 1, "push": True}
LEFT_OUT: Mapping[str, Mapping[str, object]] = {
    "Algorithm": {"refine": None},
    "NodeState": {"z": None, "statistics": None},
    "Entry": {
        **dict.fromkeys(("fits", "warns", "scheme", "literal")),
        **dict.fromkeys(("selects", "sparse", "adds_up", "tells", "remembers", "augments", "extrapolates"), False),
        "counterpart": "",
    },
    "WaitPolicy": {
        **dict.fromkeys(("announce", "resent", "essential", "cumulative"), False),
        "need": "all",
        "deadline_ns": "auto",
        "stale": 0,
        "patience": 1,
        "ordered": True,
        "on_not_finite": "refuse",
    },
    "Exchange": {
        **dict.fromkeys(("compressor", "num_rounds")),
        "on_missing": "self",
        "delivery": "plain",
        "scheme": "auto",
        "gamma": "auto",
        "extras": "exact",
        "common_start": False,
    },
    "Sgd": SGD,
    "AnySgd": SGD,
    "Distillation": DISTILLATION | {"warmup_rounds": 30, "distil_iterations": 200, "distil_steps": 3, "rate": 0.1},
    "DynaFed": DISTILLATION
    | {"warmup_rounds": 25, "distil_iterations": 3000, "distil_steps": 20, "distil_gap": 3, "rate": 0.02}
    | {"label_lr": 0.01, "label_scale": 1.0, "tuning_steps": 20, "tuning_lr": 1e-4}
    | {"augment": ("color", "crop", "cutout", "flip", "scale", "rotate")},
    "Averaging": {"server_lr": 1.0, "by_samples": False, "changes": (), "moves_vanish": False},
    "AveragingWrapper": {"beside": (), "moves_vanish": True},
    "ControlAveraging": {"beside": ("control",), "changes": ("control",)},
    "MomentumAveraging": {"beside": ("momentum",), "changes": (), "moves_vanish": False},
    "SmooAveraging": {"by_change": False, "beside": ("perturbation",)},
    "RowMixing": ROWS,
    "ShareMixing": SHARES,
    "Reference": REFERENCE,
    "PushShare": {"x": 1.0, "w": 0.0},
    "Copy": REFERENCE | {"epoch": 0, "pending": (), "asked": 0, "holes": ()},
    "Tally": {"gaps": 0, "lost_w": 0.0, "resyncs": 0, "resync_bytes": 0},
    "Heard": {"asks": (), "owed": ()},
    "CopyStep": {"came": (), "lost_w": 0.0, "ask": False},
    "Choco": {"steps": 1, "gamma": "auto", "on_missing": "self"},
    "DeepSqueeze": {"steps": 1, "gamma": "auto"},
    "LiteralQuantized": {"steps": 1},
    "BareModel": {"steps": 1},
    "ReferencedPushSum": {"steps": 1, "gamma": "auto"},
    "QuantizedPushSum": {"steps": 1, "gamma": "auto"},
    "EdgePushSum": {"steps": 1, "gamma": "auto"},
    "Differences": {"common_start": False, "mass": False, "kept": 8},
    "CompressedReports": {"feedback": "plain", "said": ()},
    "StepSize": {"age": 0, "distance": -1.0},
    "GossipState": {"staleness": None},
    "Gossip": {"steps": 1, "on_missing": "self", "stale": 0},
    "GossipThenStep": {"steps": 1, "on_missing": "self", "stale": 0},
    "MaskedAverage": {"steps": 1, "for_next": False},
    "Pairwise": {"halves": False, "step": "before", "push": True},
    "PushSum": {"steps": 1},
    "OverlappedPushSum": {"steps": 1},
    "Counter": {"round": -1, "step": 0},
    "RunningSums": {"steps": 1},
    "SlowMomentum": {"push": False},
    "TunedSynthesis": {"only": False},
    "IdentityCompressor": {"unbiased": True},
    "Qsgd": {"scaled": False, "entropy": False},
    "TopK": {"estimate": False},
    "RandomK": {"rescaled": False},
    "Vector": {"is_cpu": True, "is_cuda": False, "device": "cpu"},
}
"""Plain values alone; whose own defaults are a record's are in the row of the record."""
PLAIN = (bool, int, float, str, tuple, type(None))


@pytest.mark.parametrize("trait", SAID)
def test_a_trait_is_said_of_these_methods_and_of_no_others(trait: str) -> None:
    assert {name for name, entry in ALGORITHMS.items() if getattr(entry, trait)} == SAID[trait]


def test_methods_need_the_matrices_that_their_family_is_for() -> None:
    for name, entry in ALGORITHMS.items():
        assert all(entry.family in NEEDS[kind] for kind in entry.needs)
        assert ("column" in entry.needs) == (name in PUSH_SUM)
        assert ("average" in entry.needs) == (name == "slowmo")


def classes() -> Iterator[type]:
    """Every class of the three packages that has a public name; from others it inherits."""
    for package in (netdfl.algorithms, netdfl.mixing, netdfl.compression):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            module = importlib.import_module(found.name)
            yield from (
                each
                for name, each in inspect.getmembers(module, inspect.isclass)
                if each.__module__ == found.name and not name.startswith("_")
            )


def plain_defaults(kind: Any) -> dict[str, object]:
    """By name: the defaults of fields, and what the class itself says."""
    given = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    given |= getattr(kind, "_field_defaults", {})
    if is_dataclass(kind):
        given |= {each.name: each.default for each in fields(kind)}
    return {name: value for name, value in given.items() if type(value) in PLAIN}


def test_what_is_left_out_is_as_the_table_says() -> None:
    assert {kind.__name__: found for kind in classes() if (found := plain_defaults(kind))} == LEFT_OUT


def test_streams_begin_with_seed_0_where_none_are_given() -> None:
    whole = COMPRESSORS["identity"]()
    given = (Exchange(), Differences(compressor=whole), DeepSqueeze(compressor=whole))
    for streams in (*(each.streams for each in given), LiteralQuantized(compressor=whole).streams):
        assert streams.integer("any") == Streams(0).integer("any")
