"""The block `task`: training on data, toy problems, and tasks of a user's own."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from netdfl.scenario.model.choices import Choices, listed
from netdfl.scenario.model.fields import InputFile, Share
from netdfl.scenario.model.parts import Part


def _device(value: str) -> str:
    name, colon, number = value.partition(":")
    if value not in ("auto", "cpu", "cuda") and not (name == "cuda" and colon and number.isdigit()):
        raise ValueError(f"{value!r} is no device; write auto, cpu, cuda or cuda:N")
    return value


PARTITIONS = Choices("partition", listed("netdfl.training.data.partitions", "PARTITIONS"), default="iid")
AUGMENTATIONS = Choices("augmentation", listed("netdfl.training.data.augmentations", "AUGMENTATIONS"), default="none")
LOSSES = Choices("training loss", listed("netdfl.training.tasks.losses", "LOSSES"), "name", also="auto")
METRICS = Choices("metric", listed("netdfl.training.tasks.losses", "METRICS"), "name")


def _told_apart(metrics: list[Part]) -> list[Part]:
    names = [part.kind.rpartition(":")[2].rpartition(".")[2] for part in metrics]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two figures are named {twice[0]!r}, and one would hide the other; name a function otherwise")
    if "loss" in names:
        raise ValueError("a figure is named 'loss', as the training loss's own is; name the function otherwise")
    return metrics


class ModelPart(Part):
    """A model, and the parameters from which all nodes start."""

    key: ClassVar[str] = "name"
    buffers: Literal["average", "local", "reset"] = Field(
        "average",
        description="Running statistics (batch norm): averaged with the model; kept by each node for itself, as in "
        "FedBN; or taken anew from training examples when a model is judged.",
    )
    initial: InputFile | None = Field(
        None, description="The weights to start from: a .safetensors file, or a state_dict (.pt, .pth)."
    )


MODELS = Choices("model", listed("netdfl.training.models.catalog", "MODELS"), "name", base=ModelPart)


class DatasetPart(Part):
    """A dataset, and the partition of its training samples over the clients."""

    key: ClassVar[str] = "name"
    partition: Annotated[Part, PARTITIONS] = Field(
        {"kind": "iid"}, validate_default=True, description="Which client gets which samples."
    )
    augment: Annotated[Part, AUGMENTATIONS] = Field(
        {"kind": "none"}, validate_default=True, description="Random changes of a training batch."
    )
    test: Annotated[Share, Field(gt=0, lt=1)] = Field(
        0.2, description="The share that is held out as a test set, where the data bring none."
    )
    client_test: Annotated[Share, Field(ge=0, lt=1)] = Field(
        0.0, description="The share of each client's samples that is held out to judge its own model by."
    )


DATASETS = Choices("dataset", listed("netdfl.training.data.datasets", "DATASETS"), "name", base=DatasetPart)


class Training(Part):
    """The common keys of all tasks that train a model on data."""

    batch_size: int = Field(32, ge=1, description="Samples in a minibatch; the last one of an epoch may be smaller.")
    drop_last: bool = Field(
        False, description="Whether the last minibatch of an epoch is left out where it is smaller."
    )
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto", description="auto, cpu, cuda or cuda:N; nodes are spread over the GPUs that there are."
    )
    batching: Literal["exact", "auto"] = Field(
        "exact",
        description="How nodes that share a process train together: exact gives what one by one gives, bit for bit; "
        "auto may also compute many nodes' steps as one, equal up to rounding.",
    )
    eval_batch: int = Field(1024, ge=1, description="Samples that evaluation takes at once.")

    @property
    def split(self) -> Any:
        """The block (dataset or task) that has the keys `partition`, `test` and `client_test`."""
        return self

    @property
    def settings(self) -> Any:
        """The block (model or task) that has the keys `buffers` and `initial`."""
        return self


class Train(Training):
    """The training of a model on a dataset that is divided among the clients."""

    kind: Literal["train"] = "train"
    dataset: Annotated[DatasetPart, DATASETS] = Field(
        {"name": "digits"}, validate_default=True, description="The data; a name, or a mapping with a partition."
    )
    model: Annotated[ModelPart, MODELS] = Field(
        {"name": "mlp"}, validate_default=True, description="The model; all nodes start from the same parameters."
    )
    loss: Annotated[Part | Literal["auto"], LOSSES] = Field(
        "auto", description="What local steps bring down; auto goes by the targets: classes, numbers, several labels."
    )
    metrics: Annotated[list[Annotated[Part, METRICS]], AfterValidator(_told_apart)] = Field(
        [], description="What models are judged by beside the loss; by default what is usual for it."
    )

    @property
    def split(self) -> DatasetPart:
        """The dataset, which has the keys `partition`, `test` and `client_test`."""
        return self.dataset

    @property
    def settings(self) -> ModelPart:
        """The model, which has the keys `buffers` and `initial`."""
        return self.model


class OwnTask(Training):
    """A user's own task, and the partition of its data over the clients."""

    partition: Annotated[Part, PARTITIONS] = Field(
        {"kind": "iid"}, validate_default=True, description="Which client gets which samples."
    )
    buffers: Literal["average", "local", "reset"] = Field("average", description="See `task.model.buffers`.")
    initial: InputFile | None = Field(None, description="See `task.model.initial`.")
    test: Annotated[Share, Field(gt=0, lt=1)] = Field(0.2, description="See `task.dataset.test`.")
    client_test: Annotated[Share, Field(ge=0, lt=1)] = Field(0.0, description="See `task.dataset.client_test`.")


def _tasks() -> dict[str, object]:
    return {"train": Train, **listed("netdfl.training.catalog", "TOYS")()}


TASK = Choices("task", _tasks, default="train", own=OwnTask)
