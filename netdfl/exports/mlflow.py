"""A run as a run of MLflow: its scenario as parameters, its figures as metrics, its verdict as a tag."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from netdfl.core.errors import InputError
from netdfl.exports.scalars import missing, points
from netdfl.record.run import Run
from netdfl.scenario.loading.document import parse

MOST_A_CALL = 500
MOST_PARAMETERS = 100


def write_mlflow(run: Run, uri: str | None) -> str:
    """Log `run` to the tracking server or folder `uri`, else to the one that MLflow is set to; the run's id there.

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
    """A name that MLflow takes."""
    return curve.replace("(", "").replace(")", "")


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, str(value)
