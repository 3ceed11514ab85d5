"""A run's metrics as curves in a tracker: of the fleet, of nodes in small fleets, and means over nodes.

TensorBoard gets event files, after the run or during it. MLflow gets a run of its own: the scenario as
parameters, the points of its curves as metrics, the verdict as a tag.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from netdfl.core.errors import InputError
from netdfl.core.files import writing
from netdfl.core.installing import pip_install
from netdfl.record.run import Run
from netdfl.record.status import Display, FleetStatus
from netdfl.scenario.loading.document import parse

FOLDER = "tensorboard"
EVERY_S = 5.0
SHARE = 0.02
"""The largest share of a run's time that is spent on writing its metrics during the run."""


class TensorBoardWriter:
    """A writer of TensorBoard event files, which writes each point of a run's curves once."""

    def __init__(self, run: Run, folder: Path) -> None:
        """Write event files into `folder`. Raises InputError if tensorboardX is not installed."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise missing("tensorboardX", "tensorboard") from error
        self._run = run
        with writing(folder):
            self._writer = SummaryWriter(str(folder))
        self._written: set[tuple[str, int]] = set()
        self._writer.add_text("scenario", f"```yaml\n{run.scenario_text}\n```", 0)

    def catch_up(self, below: int | None = None) -> int:
        """Write the points of curves that were not written yet, and return their number.

        Means over nodes are written only for rounds before round `below`; None: for all rounds.
        """
        count = 0
        for point in points(self._run, below):
            if (point.curve, point.round) not in self._written:
                self._written.add((point.curve, point.round))
                self._writer.add_scalar(point.curve, point.value, point.round, walltime=point.at_s)
                count += 1
        self._writer.flush()
        return count

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


class TensorBoardDisplay:
    """A live display that passes all on to another display, and also writes event files while the fleet runs."""

    def __init__(self, run: Run, folder: Path, display: Display) -> None:
        """Write the record of `run` into `folder` as it grows. Raises InputError if tensorboardX is missing."""
        self._display = display
        self._writer = TensorBoardWriter(run, folder)
        self._again_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        """Write the remaining points of curves."""
        try:
            self._writer.catch_up()
        finally:
            self._writer.close()

    def update(self, status: FleetStatus) -> None:
        """Pass the status on, and write new points of curves at most a few times per minute."""
        self._display.update(status)
        began_s = time.monotonic()
        if began_s >= self._again_s:
            self._writer.catch_up(below=status.rounds_done)
            took_s = time.monotonic() - began_s
            self._again_s = began_s + max(EVERY_S, took_s / SHARE)

    def note(self, text: str) -> None:
        """Pass a note on to the inner display."""
        self._display.note(text)


def write_tensorboard(run: Run, folder: Path) -> Path:
    """Write all of `run` into `folder`. Raises InputError if tensorboardX is not installed."""
    writer = TensorBoardWriter(run, folder)
    writer.catch_up()
    writer.close()
    return folder


MOST_NODES = 32
"""Largest fleet with curves of single nodes."""


class CurvePoint(NamedTuple):
    """A value of a curve, in a round, at a time since the start."""

    curve: str
    round: int
    at_s: float
    value: float


def points(run: Run, below: int | None = None) -> Iterator[CurvePoint]:
    """Yield all points of the curves of `run`, which show its metrics by round.

    Means over nodes are left out from round `below` on, as not all nodes may have finished these; None: none is left
    out.
    """
    for at_s, round, name, value in run.rows(
        "SELECT at_s, round, name, value FROM metrics WHERE node IS NULL AND value IS NOT NULL ORDER BY round, name"
    ):
        yield CurvePoint(f"fleet/{name}", round, at_s, value)
    whole = "" if below is None else f"AND round < {int(below)}"
    for at_s, round, name, mean, low, high in run.rows(
        "SELECT max(at_s), round, name, avg(value), min(value), max(value) FROM metrics "
        f"WHERE node IS NOT NULL AND value IS NOT NULL {whole} GROUP BY round, name ORDER BY round, name"
    ):
        for what, value in (("mean", mean), ("lowest", low), ("highest", high)):
            yield CurvePoint(f"nodes_{what}/{name}", round, at_s, value)
    if run.graph is not None and run.graph["num_nodes"] > MOST_NODES:
        return
    for at_s, node, round, name, value in run.rows(
        "SELECT at_s, node, round, name, value FROM metrics WHERE node IS NOT NULL AND value IS NOT NULL "
        "ORDER BY round, node, name"
    ):
        yield CurvePoint(f"node_{node:03d}/{name}", round, at_s, value)


def missing(package: str, extra: str) -> InputError:
    """Return the error for a tracker's `package` that is not installed, with the advice to install `netdfl[EXTRA]`."""
    return InputError(f"{package} is not installed: {pip_install(f'netdfl[{extra}]')}")


MOST_A_CALL = 500
MOST_PARAMETERS = 100


def write_mlflow(run: Run, uri: str | None) -> str:
    """Log `run` to the tracking server or folder `uri`, by default MLflow's own setting; return the run's id.

    Raises:
        InputError: mlflow is not installed, or the tracking server refuses.
    """
    try:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag
        from mlflow.exceptions import MlflowException
    except ImportError as error:
        raise missing("mlflow", "mlflow") from error
    try:
        client = MlflowClient(tracking_uri=uri)
        scenario: Any = parse(run.scenario_text, "scenario.yaml").data
        name = str(scenario.get("name", run.path.name))
        known = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if known is None else known.experiment_id
        made = client.create_run(experiment, run_name=run.path.name).info.run_id
        parameters = [Param(key, value[:500]) for key, value in itertools.islice(_flat(scenario), MOST_PARAMETERS)]
        result = run.result if run.finished else {}
        tags = [RunTag(key, str(result[key])) for key in ("verdict", "event_log_hash") if result.get(key)]
        client.log_batch(made, params=parameters, tags=[*tags, RunTag("netdfl.run", str(run.path))])
        metrics = (Metric(_plain(p.curve), p.value, round(1000 * p.at_s), p.round) for p in points(run))
        while batch := list(itertools.islice(metrics, MOST_A_CALL)):
            client.log_batch(made, metrics=batch)
        client.set_terminated(made, "FAILED" if result.get("verdict") == "fail" else "FINISHED")
    except MlflowException as error:
        raise InputError(f"MLflow refuses the run: {str(error).splitlines()[0]}") from error
    return str(made)


def _plain(curve: str) -> str:
    """Return a curve's name in the form that MLflow accepts."""
    return curve.replace("(", "").replace(")", "")


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, str(value)
