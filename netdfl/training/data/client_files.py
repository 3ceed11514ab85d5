"""Data that are never gathered: each client's own file, read on that client's machine and nowhere else.

No machine sees all files, so the scenario says what they have in common: the inputs, the target, the classes. Each file
is checked against the scenario where it is read.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from netdfl.core.errors import DatasetError
from netdfl.core.types import NodeId
from netdfl.training.data.columns import columns_of
from netdfl.training.data.dataset import Missing
from netdfl.training.data.examples import Samples
from netdfl.training.data.own import SharedData
from netdfl.training.data.table_files import read_table
from netdfl.training.data.tables import ColumnRequest, from_table

STAND_INS = 8
"""The number of made-up examples on which a model is tried where no real examples may be seen."""


@dataclass(frozen=True, kw_only=True)
class ClientFiles:
    """The files of clients, by a pattern, and what all of them have in common.

    Attributes:
        root: the folder to which a relative pattern refers, on each machine.
        each: the pattern of the files, with `{node}` in it.
        target: the column to predict.
        inputs: the columns that it is predicted from, in this order.
        classes: the class names of a text target, or the number of classes; None: the target is a number.
        mean: the number to subtract from each input; empty: 0.
        std: the number by which each input is then divided; empty: 1.
        missing: the treatment of empty cells.
        test_file: a file with test examples for all, where there is one.
    """

    root: Path
    each: str
    target: str
    inputs: Sequence[str]
    classes: Sequence[str] | int | None = None
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    missing: Missing = "refuse"
    test_file: str | None = None

    def __post_init__(self) -> None:
        """Check that the settings in the scenario fit together. Raises DatasetError."""
        try:
            named = self.each.format(node=1) != self.each.format(node=2)
        except (IndexError, KeyError, ValueError) as error:
            raise DatasetError(
                f"each: {self.each!r} is no pattern ({error!r}): write it like data/{{node}}.csv"
            ) from error
        if not named:
            raise DatasetError(f"each: {self.each!r} names one file for all nodes: write it like data/{{node}}.csv")
        for name, given in (("mean", self.mean), ("std", self.std)):
            if given and len(given) != len(self.inputs):
                raise DatasetError(f"{name} has {len(given)} numbers for {len(self.inputs)} inputs: give one for each")
        if any(not value > 0 for value in self.std):
            raise DatasetError(f"std has {min(self.std):g}: give numbers above 0")

    @property
    def num_classes(self) -> int:
        """The number of classes; 0 where the target is a number."""
        if self.classes is None or isinstance(self.classes, int):
            return self.classes or 0
        return len(self.classes)

    def path_of(self, node: NodeId) -> Path:
        """Return the path of a node's file on this machine."""
        return self.root / Path(self.each.format(node=node)).expanduser()

    def of(self, node: NodeId) -> Samples:
        """Read the examples of a node. Raises DatasetError that names the node, the file and this machine."""
        path, here = self.path_of(node), socket.gethostname()
        if not path.is_file():
            raise DatasetError(
                f"node {node}: its file {path} is not on this machine ({here}): put it there, or set NETDFL_DATA to "
                f"the folder in which {self.each} begins"
            )
        return self._read(path, f"node {node} on {here}: {path}")

    def test(self) -> Samples | None:
        """Read the test examples that all nodes share; None if there are none. Raises DatasetError."""
        return None if self.test_file is None else self._read(Path(self.test_file), self.test_file)

    def form(self) -> SharedData:
        """Return made-up examples with the files' inputs and classes, to try a model on, and the test examples."""
        rng = np.random.default_rng(0)
        x = torch.from_numpy(rng.standard_normal((STAND_INS, len(self.inputs)), dtype=np.float32))
        y = torch.arange(STAND_INS) % self.num_classes if self.num_classes else x.sum(1)
        labels = y.numpy() if self.num_classes else None
        return SharedData(train=Samples(x, y), test=self.test(), labels=labels, num_classes=self.num_classes)

    def _read(self, path: Path, what: str) -> Samples:
        try:
            columns = columns_of(read_table(str(path), self.target))
        except OSError as error:
            raise DatasetError(f"{what} can't be read: {error.strerror}") from error
        words = () if self.classes is None or isinstance(self.classes, int) else sorted(self.classes)
        if self.target in columns:
            self._check_classes(columns[self.target].values, words, columns[self.target].empty, what)
        read = from_table(columns, ColumnRequest(self.target, self.inputs, self.missing, words), what).examples
        assert isinstance(read, Samples)
        x = read.x
        if self.mean:
            x = x - torch.tensor(self.mean, dtype=torch.float32)
        if self.std:
            x = x / torch.tensor(self.std, dtype=torch.float32)
        return Samples(x, read.y if self.num_classes else read.y.float())

    def _check_classes(
        self, values: NDArray[np.generic], words: Sequence[str], empty: NDArray[np.bool_], what: str
    ) -> None:
        """Raise DatasetError for a target that is not one of the classes.

        `values` are the cells of the target column, and `empty` marks its empty ones; `words` are the class names, if
        classes have names. `what` names the file in the message.
        """
        if self.classes is None:
            return
        own, said = values[~empty], f"{what}: the column {self.target!r} holds"
        if words:
            if other := sorted({str(value) for value in own} - set(words)):
                raise DatasetError(
                    f"{said} {other[0]!r}, which is none of the classes {', '.join(words)}: add it, or mend the file"
                )
            return
        if own.dtype.kind not in "iuf":
            raise DatasetError(f"{said} text, and classes is {self.classes}: list the words as classes")
        if wrong := [value for value in own.tolist() if value != int(value) or not 0 <= value < self.num_classes]:
            most = self.num_classes - 1
            raise DatasetError(f"{said} {wrong[0]:g}, and the classes are 0 to {most}: set classes, or mend the file")
