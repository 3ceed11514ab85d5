"""What a fleet computes: the models of `task`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from netdfl.scenario.model.choices import Choices, listed
from netdfl.scenario.model.fields import Choice
from netdfl.scenario.model.parts import Part


def _device(value: str) -> str:
    name, colon, number = value.partition(":")
    if value not in ("auto", "cpu", "cuda") and not (name == "cuda" and colon and number.isdigit()):
        raise ValueError(f"{value!r} is no device; write auto, cpu, cuda or cuda:N")
    return value


PARTITIONS = Choices("partition", listed("netdfl.training.data.partitions", "PARTITIONS"), default="iid")
AUGMENTATIONS = Choices("augmentation", listed("netdfl.training.data.augmentations", "AUGMENTATIONS"), default="none")
MODELS = Choices("model", listed("netdfl.training.models.catalog", "MODELS"), "name")


class DatasetPart(Part):
    """A dataset, and how its training samples are shared out over the clients."""

    key: ClassVar[str] = "name"
    partition: Annotated[Part, PARTITIONS] = Field(
        {"kind": "iid"}, validate_default=True, description="Which client gets which samples."
    )
    augment: Annotated[Part, AUGMENTATIONS] = Field(
        {"kind": "none"}, validate_default=True, description="Random changes of a training batch."
    )


DATASETS = Choices("dataset", listed("netdfl.training.data.datasets", "DATASETS"), "name", base=DatasetPart)


class Train(Choice):
    """Train a model on a dataset that is shared out over the clients."""

    kind: Literal["train"] = "train"
    dataset: Annotated[DatasetPart, DATASETS] = Field(
        {"name": "digits"}, validate_default=True, description="The data; a name, or a mapping with a partition."
    )
    model: Annotated[Part, MODELS] = Field(
        {"name": "mlp"}, validate_default=True, description="The model; all nodes start from the same parameters."
    )
    batch_size: int = Field(32, ge=1, description="Samples in a minibatch; the last one of an epoch may be smaller.")
    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto", description="auto, cpu, cuda or cuda:N; nodes are spread over the GPUs that there are."
    )
    batching: Literal["exact", "auto"] = Field(
        "exact",
        description="How nodes that share a process train together: exact gives what one by one gives, bit for bit; "
        "auto may also compute many nodes' steps as one, equal up to rounding.",
    )
    eval_batch: int = Field(1024, ge=1, description="Samples that evaluation takes at once.")


def _tasks() -> dict[str, object]:
    return {"train": Train, **listed("netdfl.training.catalog", "TOYS")()}


TASK = Choices("task", _tasks, default="train")
