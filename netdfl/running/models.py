"""The models that a run kept, as PyTorch modules and as files that can be used without netdfl."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from netdfl.core.errors import InputError, RunError
from netdfl.core.files import write_whole, writing
from netdfl.record.run import Run
from netdfl.record.run import open_run as open_record
from netdfl.running.provenance import refuse_changed

if TYPE_CHECKING:
    from torch import Tensor, nn

    from netdfl.host.blueprint import Blueprint
    from netdfl.host.models import ModelSnapshot
    from netdfl.host.training_problem import TrainingProblem

AVERAGE = "average.safetensors"
"""The file of the average model, next to the files of the nodes' own models."""


class TrainedRun(Run):
    """A run with the models that it kept at its end."""

    def model(self, node: int | None = None) -> nn.Module:
        """Return the average of the last models, as the run evaluated it, or the model of `node`, as a module.

        A push-sum model is divided by its weight; with a server, the average is the server's model. The scenario's own
        modules are imported and its data are read, to build the model.

        Raises:
            InputError: the run kept no models, `node` has none, or its scenario trains no model.
        """
        problem = self.problem
        x, kept = self._vector(node)
        return problem.module(x, node, kept, alone=self._alone)

    def _vector(self, node: int | None) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the parameters of the average model or of a node's model, and the module's buffers, not averaged."""
        if node is None:
            return self._average()
        last = self._last(node)
        if not last.weight:
            raise InputError(f"node {node} has no model: its push-sum weight is 0")
        return last.x / last.weight if last.weight != 1 else last.x, last.kept

    def train_figures(self, node: int | None = None) -> Mapping[str, float]:
        """Return metrics of a model on all clients' training examples, without augmentation, by name.

        They are `train_accuracy` and the loss, `train_loss`; if the task defines metrics of its own, these with the
        prefix `train_`. Raises InputError as `model` does, or if the data have changed.
        """
        with self._evaluated() as problem:
            x, kept = self._vector(node)
            return problem.evaluate_trained(x, kept, alone=self._alone)

    def test_figures(self, node: int | None = None) -> Mapping[str, float]:
        """Return metrics of a model on the test set, each with the prefix `test_`.

        Raises InputError as `model` does, or if the data have changed.
        """
        with self._evaluated() as problem:
            x, kept = self._vector(node)
            return problem.evaluate(x, kept, alone=self._alone)

    @property
    def nodes_with_models(self) -> list[int]:
        """The nodes whose last models were saved."""
        return self._with_a_model

    @property
    def problem(self) -> TrainingProblem:
        """The task with its data and its loss. Raises InputError if the run trains no model."""
        from netdfl.host.training_problem import TrainingProblem

        problem = self._blueprint.problem
        if not isinstance(problem, TrainingProblem):
            raise InputError(f"{self.path} trains no model of PyTorch's: its task is a toy problem")
        return problem

    @contextmanager
    def _evaluated(self) -> Iterator[TrainingProblem]:
        """Yield the task; inside the context it evaluates models on the scenario's GPU, if this machine has one."""
        import torch

        refuse_changed(self.path, "judged", gone=False)
        problem, device = self.problem, self._blueprint.scenario.device
        problem.move_to(device if device.startswith("cuda") and torch.cuda.is_available() else "cpu")
        try:
            yield problem
        finally:
            problem.move_to("cpu")

    def keep_average(self, most_bytes: int) -> None:
        """Save the average model; delete the nodes' own models if they have more than `most_bytes` bytes in total.

        Raises InputError as `model` does, and RunError if the disk refuses.
        """
        from netdfl.host.models import write_snapshot

        average, kept = self._average()
        with writing(self._average_path, RunError):
            write_snapshot(self._average_path, average, 1.0, kept)
        own = [file for file in self._average_path.parent.glob("*.safetensors") if file != self._average_path]
        if len(own) > 1 and sum(file.stat().st_size for file in own) > most_bytes:
            for file in own:
                file.unlink()

    @property
    def _average_path(self) -> Path:
        return self.path / "models" / AVERAGE

    @property
    def _alone(self) -> bool:
        """Whether only one node has a model, and the run has no server."""
        return len(self._with_a_model) == 1 and not self._blueprint.scenario.has_server

    @property
    def _with_a_model(self) -> list[int]:
        return [node for node in self._blueprint.evaluated if self._path(node).is_file()]

    @cached_property
    def _blueprint(self) -> Blueprint:
        from netdfl.host.blueprint import Blueprint
        from netdfl.scenario.load import load

        try:
            return Blueprint.of(load(self.path / "scenario.yaml"))
        except InputError as error:
            raise InputError(f"the model of {self.path} can't be built: {error}") from error

    def _average(self) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the average model, and the first node's module buffers that are not averaged."""
        from netdfl.host.judging import averaged
        from netdfl.host.models import read_snapshot

        nodes = self._with_a_model
        if not nodes and self._average_path.is_file():
            found = read_snapshot(self._average_path, self._blueprint.problem.judged_dim)
            return found.x, found.kept
        if not nodes:
            self._last(self._blueprint.evaluated[0])
        average, _ = averaged([lambda node=node: self._last(node) for node in nodes])  # type: ignore[misc]
        if average is None:
            raise InputError(f"{self.path} has no average model: no node has push-sum weight")
        first = next(last for last in map(self._last, nodes) if last.weight)
        return average, first.kept

    def _path(self, node: int) -> Path:
        from netdfl.host.models import model_path

        return model_path(self.path, node)

    def _last(self, node: int) -> ModelSnapshot:
        from netdfl.host.models import read_snapshot

        path = self._path(node)
        if path.is_file():
            return read_snapshot(path, self._blueprint.problem.judged_dim)
        kept = sorted(int(file.stem) for file in path.parent.glob("*.safetensors") if file.name != AVERAGE)
        if kept:
            raise InputError(f"{self.path} has no model of node {node}: it kept those of {', '.join(map(str, kept))}")
        remedy = "run it again with --set evaluation.keep_models=true"
        raise InputError(f"{self.path} kept no models (by default small ones are kept, at the end of a run): {remedy}")


def open_run(path: Path | str) -> TrainedRun:
    """Open a run directory, finished or not.

    Raises:
        InputError: there is no run at `path`, or it holds a file that is not a plain one.
    """
    return TrainedRun(open_record(path).path)


def export_model(run: TrainedRun, folder: Path, node: int | None = None) -> str:
    """Write the model as `model.safetensors` and as a `state_dict` (`model.pt`); return loading instructions.

    Raises:
        InputError: there is no such model, or the files can't be written.
    """
    import io

    import torch
    from safetensors.torch import save

    module = run.model(node)
    state = {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}
    buffer = io.BytesIO()
    torch.save(state, buffer)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "model.safetensors", save(state))
        write_whole(folder / "model.pt", buffer.getvalue())
    load = f"model.load_state_dict(torch.load('{folder / 'model.pt'}', weights_only=True)); model.eval()"
    return f"{folder / 'model.safetensors'}\n{folder / 'model.pt'}\nload: {load}"
