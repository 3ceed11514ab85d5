"""The printed numbers that ship with the package are those of the papers."""

from __future__ import annotations

import pytest

from netdfl.core.errors import InputError
from netdfl.study.trials import PublishedFigure, figures, published


def one(paper: str, table: str, **wanted: str) -> PublishedFigure:
    (found,) = [f for f in published(paper, table) if all(getattr(f, k) == v for k, v in wanted.items())]
    return found


def test_all_rows_are_there_and_no_cell_twice() -> None:
    cells = [
        tuple(getattr(f, k) for k in PublishedFigure.__slots__ if k not in ("value", "std", "beyond"))
        for f in figures()
    ]
    assert len(cells) == len(set(cells)) == 1007


@pytest.mark.parametrize(
    ("paper", "table", "cell", "value", "std"),
    [
        (
            "003",
            "TII",
            {
                "dataset": "Fashion-MNIST",
                "partition": "Path(1)",
                "algorithm": "FedSynSAM",
                "compressor": "QSGD-4bit",
            },
            84.04,
            0.19,
        ),
        ("003-FedSynSAM", "tiii", {"algorithm": "DynaFed", "compressor": "top-k 0.25"}, 38.63, 0.16),
        (
            "fedsynsam",
            "TII",
            {
                "dataset": "CIFAR-10",
                "topology": "server, 50 clients, 20% participation",
                "algorithm": "FedLESAM-D",
                "compressor": "top-k 0.1",
            },
            62.04,
            0.59,
        ),
    ],
)
def test_cells_are_as_printed(paper: str, table: str, cell: dict[str, str], value: float, std: float) -> None:
    found = one(paper, table, **cell)
    assert (found.value, found.std, found.beyond) == (value, std, False)


def test_targets_that_were_not_reached_are_limits() -> None:
    beyond = [f for f in figures() if f.beyond]
    assert beyond
    assert all(f.metric.startswith("rounds_to_") and f.value == 500 for f in beyond)


def test_percentages_are_percentages() -> None:
    for figure in figures():
        if figure.metric in ("test_acc", "train_acc"):
            assert 0 < figure.value <= 100, figure


def test_gaps_are_differences_but_where_the_notes_say_so() -> None:
    def cell(figure: PublishedFigure) -> tuple[str, ...]:
        return figure.paper, figure.table, figure.dataset, figure.partition, figure.topology, figure.algorithm

    shown = {(cell(f), f.metric): f.value for f in figures()}
    checked = 0
    for figure in figures():
        parts = [shown.get((cell(figure), metric)) for metric in ("train_acc", "test_acc")]
        if figure.metric == "gap" and None not in parts and not figure.notes:
            assert figure.value == pytest.approx(parts[0] - parts[1], abs=0.011), figure  # type: ignore[operator]
            checked += 1
    assert checked > 20


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("D-PSGD", "dpsgd"),
        ("DFedSAM-MGS", "dfedsam_mgs"),
        ("OledFL-SGD", "oledfl_sgd"),
        ("FedLESAM-D", "fedlesam_d"),
        ("DFedSGPSM-S", "dfedsgpsm_s"),
        ("DynaFed", "dynafed_synonly"),
    ],
)
def test_methods_have_the_catalogs_names(printed: str, name: str) -> None:
    assert {f.method for f in figures() if f.algorithm == printed} == {name}


def test_every_method_of_fedsynsams_tables_is_in_the_catalog() -> None:
    from netdfl.algorithms.catalog import ALGORITHMS

    methods = {f.method for table in ("TII", "TIII", "TIV") for f in published("003", table)}
    assert methods <= set(ALGORITHMS)
    assert len(methods) == 9


@pytest.mark.parametrize(
    ("paper", "table", "message"),
    [
        ("005", "T1", r"no paper '005'; expected one of 000-DFedSAM-anon, .*004-DFedSGPSM"),
        ("004", "T9", r"paper 004-DFedSGPSM has no table 'T9'; expected one of T1, T2"),
    ],
)
def test_an_unknown_table_is_told_what_there_is(paper: str, table: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        published(paper, table)
