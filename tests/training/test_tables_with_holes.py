"""Tables with holes: refused, dropped or filled, never trained on in silence; in every form in which tables come."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import torch

import netdfl
from netdfl.core.errors import DatasetError
from netdfl.core.rng import Streams
from netdfl.running.display import SilentDisplay
from netdfl.running.prepare import check_ready
from netdfl.scenario.explain.explain import explain
from netdfl.training.data.on_disk import table
from netdfl.training.data.own import Datasets, SharedData, shared
from netdfl.training.data.partitions import by_column
from netdfl.training.data.sharing import share_out

Cells = dict[str, list[Any]]
NUM, HOLES = 12, (1, 7)
FULL: Cells = {
    "whole": [3 * k % 7 for k in range(NUM)],
    "real": [k / 4 for k in range(NUM)],
    "flag": [k % 3 == 0 for k in range(NUM)],
    "word": ["acb"[k % 3] for k in range(NUM)],
    "site": ["xyz"[k % 3] for k in range(NUM)],
}
KINDS = ("whole", "real", "flag", "word")


class Hub:
    """A `datasets.Dataset` as far as netdfl asks."""

    features: Mapping[str, object] = {}

    def __init__(self, cells: Cells) -> None:
        self.cells, self.column_names = cells, list(cells)

    def __len__(self) -> int:
        return len(self.cells[self.column_names[0]])

    def __getitem__(self, key: int | str) -> Any:
        return self.cells[key] if isinstance(key, str) else {name: cells[key] for name, cells in self.cells.items()}


def in_csv(cells: Cells, folder: Path, mark: str = ",", comma: bool = False) -> str:
    file = folder / "t.csv"
    with file.open("w", newline="") as stream:
        out = csv.writer(stream, delimiter=mark)
        out.writerow(cells)
        for row in zip(*cells.values(), strict=True):
            words = ["" if cell is None else str(cell) for cell in row]
            out.writerow([word.replace(".", ",") if comma else word for word in words])
    return str(file)


def in_parquet(cells: Cells, folder: Path) -> str:
    polars = pytest.importorskip("polars")
    frame, file = polars.DataFrame(cells), str(folder / "t.parquet")
    names = ", ".join(f"unnest(?) AS {name}" for name in frame.columns)
    duckdb.sql(f"SELECT {names}", params=[cells[name] for name in cells]).write_parquet(file)
    return file


def of_file(write: Callable[[Cells, Path], str]) -> Callable[..., SharedData]:
    def read(cells: Cells, folder: Path, **asked: Any) -> SharedData:
        return shared(table(folder, file=write(cells, folder), **asked))

    return read


def of_object(make: Callable[[Cells], Any]) -> Callable[..., SharedData]:
    def read(cells: Cells, folder: Path, **asked: Any) -> SharedData:
        return shared(Datasets(train=make(cells), **asked))

    return read


def in_pandas(cells: Cells) -> Any:
    return pytest.importorskip("pandas").DataFrame(cells)


def in_nullable_pandas(cells: Cells) -> Any:
    return in_pandas(cells).convert_dtypes()


FORMS: Mapping[str, Callable[..., SharedData]] = {
    "csv": of_file(in_csv),
    "semicolons and decimal commas": of_file(lambda cells, folder: in_csv(cells, folder, ";", comma=True)),
    "parquet": of_file(in_parquet),
    "pandas": of_object(in_pandas),
    "nullable pandas": of_object(in_nullable_pandas),
    "polars": of_object(lambda cells: pytest.importorskip("polars").DataFrame(cells)),
    "hugging face": of_object(Hub),
}


def holed(name: str) -> Cells:
    return FULL | {name: [None if row in HOLES else cell for row, cell in enumerate(FULL[name])]}


def left(cells: Cells) -> Cells:
    """The cells of the rows without holes."""
    return {name: [cell for row, cell in enumerate(column) if row not in HOLES] for name, column in cells.items()}


def trained(data: SharedData) -> tuple[list[list[float]], list[float]]:
    x, y = data.train.take(torch.arange(len(data.train)))
    return x.tolist(), y.tolist()


class ByColumn:
    """The partition of a scenario by one column."""

    kind, own = "by_column", None

    def __init__(self, column: str) -> None:
        self.params = {"column": column}

    def build(self, values: Any, num: int, streams: Streams) -> Any:
        return by_column(values, num, streams, **self.params)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_target_is_refused_with_its_place_or_dropped(form: str, kind: str, tmp_path: Path) -> None:
    read = FORMS[form]
    inputs = [name for name in ("whole", "real") if name != kind]
    for missing in ("refuse", "mean"):
        with pytest.raises(
            DatasetError, match=f"row 1 .counted from 0. is empty in column '{kind}', and so are 1 more"
        ):
            read(holed(kind), tmp_path, target=kind, inputs=inputs, missing=missing)
    got = read(holed(kind), tmp_path, target=kind, inputs=inputs, missing="drop")
    as_if = (
        left(FULL)
        if form != "pandas" or kind != "whole"
        else left(FULL) | {"whole": list(map(float, left(FULL)["whole"]))}
    )
    assert trained(got) == trained(read(as_if, tmp_path, target=kind, inputs=inputs))
    assert got.rows is not None
    assert [row for row in range(NUM) if row not in got.rows] == list(HOLES)
    assert any("2 rows with empty cells left out" in note for note in got.notes)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["whole", "real", "flag"])
def test_an_empty_input_is_refused_dropped_or_filled_with_the_mean(form: str, kind: str, tmp_path: Path) -> None:
    read, asked = FORMS[form], {"target": "word"}
    with pytest.raises(DatasetError, match=f"row 1 .counted from 0. is empty in column '{kind}'.*missing: drop.*mean"):
        read(holed(kind), tmp_path, **asked)
    assert trained(read(holed(kind), tmp_path, **asked, missing="drop")) == trained(read(left(FULL), tmp_path, **asked))
    filled = read(holed(kind), tmp_path, **asked, missing="mean")
    place = ("whole", "real", "flag").index(kind)
    present = left(FULL)[kind]
    for row, inputs in enumerate(trained(filled)[0]):
        wanted = np.float32(sum(present) / len(present) if row in HOLES else FULL[kind][row])
        assert inputs[place] == wanted
    others = [name for name in ("whole", "real", "flag") if name != kind]
    assert len(trained(read(holed(kind), tmp_path, **asked, inputs=others))[0]) == NUM  # what is no input may be empty


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["site", "whole", "real"])
def test_an_empty_cell_of_the_column_to_share_out_by_is_refused_or_nobodys(
    form: str, kind: str, tmp_path: Path
) -> None:
    asked = {"target": "word", "inputs": ["flag"]}
    with pytest.raises(DatasetError, match=f"partition: row 1 .counted from 0. is empty in column '{kind}'"):
        share_out(FORMS[form](holed(kind), tmp_path, **asked), ByColumn(kind), 2, Streams(0))
    data = FORMS[form](holed(kind), tmp_path, **asked, missing="drop")
    parts, (note,) = share_out(data, ByColumn(kind), 2, Streams(0))
    assert sorted(np.concatenate(parts).tolist()) == [row for row in range(NUM) if row not in HOLES]
    assert note == f"partition: examples whose {kind} is empty are nobody's (2)"


@pytest.mark.parametrize("form", FORMS)
def test_it_is_said_which_columns_are_inputs_and_why_others_are_not(form: str, tmp_path: Path) -> None:
    (note,) = FORMS[form](FULL | {"none": [None] * NUM}, tmp_path, target="word").notes
    assert (
        "word is predicted from whole, real, flag; left out: site (text, 'x' in row 0), none (nothing in any row)"
        in note
    )
    assert not FORMS[form](FULL, tmp_path, target="word", inputs=["real"]).notes


def csv_of(folder: Path, text: str) -> Callable[..., SharedData]:
    (folder / "t.csv").write_text(text)
    return lambda **asked: shared(table(folder, file=str(folder / "t.csv"), **{"target": "y"} | asked))


def rows_of(values: Sequence[str]) -> Iterator[str]:
    return (f"{k % 2},{value}\n" for k, value in enumerate(values))


@pytest.mark.parametrize("word", ["?", "NA", "n/a", "-", "null", "nan"])
def test_a_word_that_says_unknown_among_numbers_is_an_empty_cell(word: str, tmp_path: Path) -> None:
    read = csv_of(tmp_path, "y,a\n" + "".join(rows_of(["1", "2", word, "4"])))
    with pytest.raises(DatasetError, match=r"t\.csv: row 2 .counted from 0. is empty in column 'a'"):
        read()
    assert trained(read(missing="drop"))[0] == [[1], [2], [4]]
    late = csv_of(tmp_path, "y,a\n" + "".join(rows_of(["1"] * 30_000 + [word])))  # beyond what is looked at first
    with pytest.raises(DatasetError, match="row 30000 "):
        late()


def test_a_row_that_is_too_short_has_empty_cells(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"row 1 .counted from 0. is empty in column 'y'"):
        csv_of(tmp_path, "a,y\n1,0\n2\n3,1\n")()
    broken = csv_of(tmp_path, 'a,note,y\n1,"two\nlines",0\n2,x,1\n3,"and\nmore",0\n')  # a line break is no end of a row
    assert trained(broken()) == ([[1], [2], [3]], [0, 1, 0])


def test_where_no_column_is_left_it_is_said_why(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"t\.csv has no column of numbers beside y: a .text, 'x' in row 0."):
        csv_of(tmp_path, "a,y\nx,0\nz,1\n")()


def test_a_word_of_another_sort_makes_a_column_text_and_is_shown(tmp_path: Path) -> None:
    read = csv_of(tmp_path, "y,a,b\n0,1,1\n1,2,unknown\n0,3,3\n")
    assert read().notes == ["t.csv: y is predicted from a; left out: b (text, 'unknown' in row 1)"]
    with pytest.raises(
        DatasetError, match="the column 'b' holds text, 'unknown' in row 1, expected numbers: encode it"
    ):
        read(inputs=["b"])


def test_decimal_commas_are_understood_and_what_may_be_thousands_is_refused(tmp_path: Path) -> None:
    assert trained(csv_of(tmp_path, "y;a\n0;1,5\n1;-,25\n0;3\n")())[0] == [[1.5], [-0.25], [3]]
    assert trained(csv_of(tmp_path, "y;a\n0;1.234,5\n1;2,5\n")())[0] == [[1234.5], [2.5]]
    # one column shows it for the file
    assert trained(csv_of(tmp_path, "y;a;b\n0;1,5;1,234\n1;2,5;2,345\n")())[0] == [
        [1.5, np.float32(1.234)],
        [2.5, np.float32(2.345)],
    ]
    unsure = csv_of(tmp_path, "y;a;b\n0;1,234;5\n1;2,345;6\n")
    with pytest.raises(DatasetError, match=r"t\.csv: the column 'a' holds '1,234', which may be 1234 or 1\.234: write"):
        unsure()
    assert trained(unsure(inputs=["b"]))[0] == [[5], [6]]
    with pytest.raises(DatasetError, match="the column 'a' holds '1,234'"):
        csv_of(tmp_path, 'y,a\n0,"1,234"\n1,"2,345"\n')()


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_first_line_says_by_what_columns_are_parted(mark: str, tmp_path: Path) -> None:
    comma = mark != ","
    text = "\n".join(
        mark.join(row) for row in (["y", "a", "b"], ["0,5" if comma else "0.5", "1", "2"], ["1", "3", "4"])
    )
    data = csv_of(tmp_path, text + "\n")()
    assert trained(data) == ([[1, 2], [3, 4]], [0.5, 1])


def test_classes_of_text_have_one_number_in_training_and_test_data() -> None:
    pandas = pytest.importorskip("pandas")
    train = pandas.DataFrame({"a": [1.0, 2.0, 3.0], "y": ["low", "mid", "high"]})
    test = pandas.DataFrame({"a": [1.0, 2.0], "y": ["low", "mid"]})  # by themselves they would be 0 and 1
    data = shared(Datasets(train=train, test=test, target="y"))
    assert data.test is not None
    assert trained(data)[1][:2] == [1, 2]
    assert data.test.take(torch.arange(2))[1].tolist() == [1, 2]
    assert data.num_classes == 3


def test_a_class_that_says_unknown_is_pointed_at(tmp_path: Path) -> None:
    data = csv_of(tmp_path, "y,a\nill,1\n?,2\nwell,3\n")()
    assert "t.csv: y has the class '?': where that says that nothing is known, leave it empty" in data.notes


class Said(SilentDisplay):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_validate_explain_and_run_say_it(tmp_path: Path) -> None:
    in_csv(FULL, tmp_path)
    scenario: dict[str, object] = {"schema": "netdfl/1", "name": "said", "nodes": 2, "rounds": 1, "world": "simulated"}
    scenario |= {"algorithm": "dfedavg", "topology": "ring"}
    data = {"name": "table", "file": "t.csv", "target": "word"}
    (tmp_path / "s.yaml").write_text(json.dumps(scenario | {"task": {"dataset": data}}))
    loaded = netdfl.load(tmp_path / "s.yaml")
    wanted = [
        "t.csv: word is predicted from whole, real, flag; left out: site (text, 'x' in row 0)",
        "2 of 12 examples are held out as the test set, as the data bring none",
    ]
    assert check_ready(loaded) == wanted
    assert explain(loaded).notes == wanted
    view = Said()
    netdfl.run(loaded, out=tmp_path / "run", page=False, view=nullcontext(view))
    assert view.notes == wanted


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("folder", ["fold=1", "y=7", "t[1]*?", "it's 100% {a,b}"])
def test_a_table_has_its_own_columns_and_rows_wherever_it_lies(form: str, folder: str, tmp_path: Path) -> None:
    """DuckDB takes names for patterns, and makes a column of each `key=value` in a path."""
    cells: Cells = {"a": [1.5, 2.5], "y": [0, 1]}
    for name in ("t1", folder):  # `t[1]` as a pattern means the first
        (tmp_path / name).mkdir()
        FORMS[form](cells | {"a": [8.5, 9.5]} if name == "t1" else cells, tmp_path / name, target="y")
    data = FORMS[form](cells, tmp_path / folder, target="y")
    assert trained(data) == ([[1.5], [2.5]], [0, 1])


BROKEN = [
    (b"", "has no rows: give it one for each example, below a line with the columns' names"),
    (b"\n\n", "has no rows: give it"),
    (b"a,y\n", "has no rows: give it"),
    (b"a,y\n1,0\n2,1\n3,0,oops\n", "line 4 has 3 cells, and the first line 2: put cells that hold ',' in quotes"),
    (b'a;y\n1;0\n"2\n3";1\n3;0;x\n', "line 5 has 3 cells, and the first line 2: put cells that hold ';' in quotes"),
    ("a,y\n1,0\n2,stra\xdfe\n".encode("latin-1"), "is not text in UTF-8 .* at byte 14.; save it as UTF-8"),
    ("a,y\n1,0\n".encode("utf-16")[:-1], "is not text in UTF-8 .*; save it as UTF-8"),
    (b"PK\x03\x04\x14\x00\x06\x00\x08\x00\x00\x00!\x00", "is no text: save the table as CSV in UTF-8, or as Parquet"),
]


@pytest.mark.parametrize(("content", "said"), BROKEN)
def test_a_file_that_is_no_table_is_refused_with_the_line_and_a_remedy(
    content: bytes, said: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DatasetError, match=rf"t\.csv:? {said}") as raised:
        table(tmp_path, file=str(tmp_path / "t.csv"), target="y")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"a,y\n1,0\n", gzip.compress(b"a,y\n1,0\n", mtime=0)[:-6]])
def test_a_damaged_packed_table_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(content)
    with pytest.raises(DatasetError, match=r"t\.csv\.gz (is packed by gzip, and damaged|can't be read as a table)"):
        table(tmp_path, file=str(tmp_path / "t.csv.gz"), target="y")
