"""The command `netdfl measure`: measures the minimum that a run has found, for the run's report.

Measurements lie in RUN/measures: `sharpness.json`, `landscape.json` with `landscape_lines.png` and
`landscape_planes.png`, `gap.json`. The average model comes first, then some of the nodes' own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import torch

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole, writing
from netdfl.measure.curvature import hutchinson, lanczos
from netdfl.measure.landscape import direction, line, plane
from netdfl.measure.pictures import draw_lines, draw_planes
from netdfl.measure.surface import LossSurface
from netdfl.record.plain_json import dump_json
from netdfl.report.words import bounded
from netdfl.running.models import TrainedRun
from netdfl.running.provenance import refuse_changed
from netdfl.worlds.simulated.arithmetic import exact_arithmetic

if TYPE_CHECKING:
    from torch import nn

What: TypeAlias = Literal["sharpness", "landscape", "gap"]
MEASURES = "measures"
AVERAGE = "average"
MOST_STEPS = 100
"""The most products with the Hessian that the search for its largest eigenvalues makes."""
MOST_BYTES = 1 << 30
"""The most bytes of Lanczos vectors; a very large model gets fewer of them, and larger errors of eigenvalues."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of measurements.

    Attributes:
        samples: the number of training examples.
        local: the number of nodes whose own models are measured in addition to the average model.
        count: the number of largest eigenvalues.
        probes: the number of random vectors for the trace.
        reach: the largest multiple of a direction, added to or subtracted from the model, in a landscape.
        points: the number of points of a landscape along a line.
        grid: the number of points along each side of a plane.
        seed: the seed of random directions.
    """

    samples: int = 5000
    local: int = 3
    count: int = 5
    probes: int = 20
    reach: float = 1.0
    points: int = 41
    grid: int = 21
    seed: int = 0

    def generator(self) -> torch.Generator:
        """Return a new generator of random directions, with the same seed for each model."""
        return torch.Generator().manual_seed(self.seed)


def measure(run: TrainedRun, what: str, settings: Settings, say: Callable[[str], None]) -> Path:
    """Make the measurement `what` on a run's last models; write and print it, and return its JSON file.

    `what` is `sharpness`, `landscape` or `gap`.

    Raises:
        InputError: the run kept no models, or trains none; `what` is no measurement; or the run's data have changed.
        RunError: a file can't be written.
    """
    if what not in get_args(What):
        raise InputError(f"there is no measurement {what!r}; expected one of {', '.join(get_args(What))}")
    refuse_changed(run.path, "measured", gone=False)
    with exact_arithmetic():
        found, pictures = _MEASUREMENTS[what](run, settings, say)
    folder = run.path / MEASURES
    with writing(folder, RunError):
        folder.mkdir(exist_ok=True)
        for name, data in pictures.items():
            write_whole(folder / name, data)
        path = folder / f"{what}.json"
        taken = len(run.problem.trained)  # the gap is that of all
        samples = taken if what == "gap" else min(taken, settings.samples)
        head = {"schema": f"netdfl/{what}/1", "samples": samples, "seed": settings.seed}
        write_whole(path, (dump_json({**head, **found}) + "\n").encode())
    return path


Found: TypeAlias = tuple[Mapping[str, object], Mapping[str, bytes]]


def _models(run: TrainedRun, settings: Settings) -> Mapping[str, nn.Module]:
    """Return the average model and the models of some nodes, by name."""
    nodes = run.nodes_with_models
    chosen = [nodes[index] for index in _spread(len(nodes), settings.local)] if len(nodes) > 1 else []
    return {AVERAGE: run.model()} | {f"node {node}": run.model(node) for node in chosen}


def _surfaces(run: TrainedRun, settings: Settings) -> Mapping[str, LossSurface]:
    problem = run.problem
    train = problem.trained
    chosen = train.only(np.array(_spread(len(train), settings.samples), np.int64))
    return {name: LossSurface(module, problem, chosen) for name, module in _models(run, settings).items()}


def _spread(num: int, most: int) -> Sequence[int]:
    """Return at most `most` of the indices below `num`, evenly spaced."""
    return [int(place) for place in np.linspace(0, num - 1, min(num, most))] if num and most else []


def _sharpness(run: TrainedRun, settings: Settings, say: Callable[[str], None]) -> Found:
    models = {}
    for name, surface in _surfaces(run, settings).items():
        drawn = settings.generator()
        steps = min(MOST_STEPS, max(settings.count, MOST_BYTES // (8 * surface.dim)))
        spectrum = lanczos(surface.hessian_times, surface.dim, count=settings.count, steps=steps, generator=drawn)
        trace = hutchinson(surface.hessian_times, spectrum, probes=settings.probes, generator=drawn)
        models[name] = {
            "eigenvalues": spectrum.largest,
            "errors": spectrum.errors,
            "smallest": spectrum.smallest,
            "steps": spectrum.steps,
            "trace": trace.value,
            "trace_error": trace.error,
            "probes": trace.probes,
            "loss": surface.value(surface.at),
            "gradient_norm": float(surface.gradient().norm()),
        }
        errors = zip(spectrum.largest, spectrum.errors, strict=True)
        largest = ", ".join(bounded(f"{value:.4g}", value, error) for value, error in errors)
        say(f"{name}: largest eigenvalues {largest}; trace {trace.value:.4g} ± {trace.error:.2g}")
    return {"models": models}, {}


def _landscape(run: TrainedRun, settings: Settings, say: Callable[[str], None]) -> Found:
    places = np.linspace(-settings.reach, settings.reach, settings.points).tolist()
    square = np.linspace(-settings.reach, settings.reach, settings.grid).tolist()
    lines, planes = {}, {}
    for number, (name, surface) in enumerate(_surfaces(run, settings).items()):
        drawn = settings.generator()
        ways = direction(surface, drawn), direction(surface, drawn)
        lines[name] = line(surface, ways[0], places)
        if number < 2:
            planes[name] = plane(surface, ways, square)
        say(f"{name}: loss {surface.value(surface.at):.4g}, at most {max(lines[name]):.4g} within {settings.reach:g}")
    found = {"places": places, "lines": lines, "square": square, "planes": planes}
    pictures = {"landscape_lines.png": draw_lines(places, lines), "landscape_planes.png": draw_planes(square, planes)}
    return found, pictures


def _gap(run: TrainedRun, settings: Settings, say: Callable[[str], None]) -> Found:
    nodes = run.nodes_with_models
    chosen = [nodes[index] for index in _spread(len(nodes), settings.local)] if len(nodes) > 1 else []
    models = {}
    for name, node in {AVERAGE: None, **{f"node {node}": node for node in chosen}}.items():
        figures = {**run.train_figures(node), **run.test_figures(node)}
        gaps = {
            f"gap_{each.removeprefix('train_')}": value - figures[f"test_{each.removeprefix('train_')}"]
            for each, value in figures.items()
            if f"test_{each.removeprefix('train_')}" in figures and each.startswith("train_")
        }
        models[name] = figures | gaps
        say(f"{name}: " + ", ".join(f"{each} {value:.4g}" for each, value in models[name].items()))
    return {"models": models}, {}


_MEASUREMENTS: Mapping[str, Callable[[TrainedRun, Settings, Callable[[str], None]], Found]] = {
    "sharpness": _sharpness,
    "landscape": _landscape,
    "gap": _gap,
}
