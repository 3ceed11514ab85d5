"""Losses and metrics of models, by name. The tables can be read without torch.

A loss is a function `(outputs, targets, /)` that returns the mean over the examples of a minibatch; a metric is a
function of outputs and targets of all tested examples that returns a number. Outputs and targets must fit:

    cross_entropy           (N, classes, ...) or (N, ..., classes)    whole numbers (N, ...)
    mse, l1                 (N, ...)                                  real numbers (N, ...)
    binary_cross_entropy    (N, labels), before the sigmoid           0 or 1 (N, labels)

Axes of length 1 may be missing on one side: outputs (N, 1) fit targets (N,). Where sequences are as long as there are
classes, shapes do not show which axis has the classes: `on_axis` names it.

Examples of class -100 (padding, an unlabeled pixel) are left out, by cross-entropy as in PyTorch and by metrics of
classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from netdfl.core.errors import DatasetError
from netdfl.core.tables import by_name

if TYPE_CHECKING:
    from torch import Tensor
else:  # so that a scenario's schema can be made from the signatures without torch
    Tensor = object


T = TypeVar("T")
LEFT_OUT = -100
"""The class of targets to leave out: PyTorch's `ignore_index`."""


def cross_entropy(outputs: Tensor, targets: Tensor, /) -> Tensor:
    """Classes: of an input, of each token, of each pixel.

    Return the mean cross-entropy of class scores, `outputs`, for the true classes, `targets`.
    """
    return entropy(_classes_second(outputs, targets), targets)


def mse(outputs: Tensor, targets: Tensor, /) -> Tensor:
    """Real numbers: the mean of the squared errors."""
    return (_like(outputs, targets) - targets).square().mean()


def l1(outputs: Tensor, targets: Tensor, /) -> Tensor:
    """Real numbers: the mean of the absolute errors."""
    return (_like(outputs, targets) - targets).abs().mean()


def binary_cross_entropy(outputs: Tensor, targets: Tensor, /) -> Tensor:
    """Several labels at once, each there or not.

    Return the mean binary cross-entropy of yes-or-no labels; `outputs` are values before the sigmoid.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    return binary_cross_entropy_with_logits(_like(outputs, targets), targets.to(outputs.dtype))


LOSSES = by_name(cross_entropy, mse, l1, binary_cross_entropy)
"""Every loss by name."""
OF_NUMBERS = ("mse", "l1")
"""The losses that take targets as numbers, even integers: a model has an output for each, and no class scores."""


def accuracy(outputs: Tensor, targets: Tensor, /) -> float:
    """Return the share of correct classes."""
    right = _classes_second(outputs, targets).argmax(1) == targets
    return float(right[targets != LEFT_OUT].double().mean())


def mae(outputs: Tensor, targets: Tensor, /) -> float:
    """The mean absolute error."""
    return float((_like(outputs, targets) - targets).abs().double().mean())


def rmse(outputs: Tensor, targets: Tensor, /) -> float:
    """The root of the mean squared error."""
    return float((_like(outputs, targets) - targets).square().double().mean().sqrt())


def r2(outputs: Tensor, targets: Tensor, /) -> float:
    """The share of the targets' variance that is explained; below 0 where their mean would do better."""
    left = (_like(outputs, targets) - targets).square().double().sum()
    return float(1 - left / (targets - targets.mean(0)).square().double().sum())


def label_accuracy(outputs: Tensor, targets: Tensor, /) -> float:
    """Return the share of correct labels among several yes-or-no labels, each predicted if above one half."""
    return float(((_like(outputs, targets) > 0) == (targets > 0.5)).double().mean())


def f1(outputs: Tensor, targets: Tensor, /) -> float:
    """Return the harmonic mean of precision and recall over all labels and examples."""
    said, true = _like(outputs, targets) > 0, targets > 0.5
    return float(2 * (said & true).sum() / (said.sum() + true.sum()).clamp(min=1))


def perplexity(outputs: Tensor, targets: Tensor, /) -> float:
    """The exponential of the mean cross-entropy."""
    return float(cross_entropy(outputs, targets).double().exp())


def mean_iou(outputs: Tensor, targets: Tensor, /) -> float:
    """Return the intersection over union of pixel classes, averaged over the classes that occur."""
    said, counted = _classes_second(outputs, targets).argmax(1), targets != LEFT_OUT
    shares = []
    for label in range(_classes_second(outputs, targets).shape[1]):
        ours, true = (said == label) & counted, targets == label
        if union := int((ours | true).sum()):
            shares.append(int((ours & true).sum()) / union)
    return sum(shares) / len(shares) if shares else float("nan")


OF_CLASSES = ("cross_entropy", "accuracy", "perplexity", "mean_iou")
"""The losses and metrics of class scores."""

METRICS = by_name(accuracy, mae, rmse, r2, label_accuracy, f1, perplexity, mean_iou)
"""Every metric by name."""

USUAL = {
    "cross_entropy": ("accuracy",),
    "mse": ("rmse", "mae"),
    "l1": ("rmse", "mae"),
    "binary_cross_entropy": ("label_accuracy", "f1"),
}
"""The default metrics for each loss, beside the loss itself."""


def fitting_loss(targets: Tensor) -> str:
    """Return the name of the loss that suits some targets, judged by their type.

    Several columns of only 0 and 1 count as labels. Raises ValueError if the targets are not one tensor.
    """
    if not hasattr(targets, "shape"):
        what = f"the targets are {type(targets).__name__}, where netdfl's own losses take one tensor"
        raise ValueError(f"{what}: name a loss and metrics of your own that take it")
    if not targets.is_floating_point():
        return "cross_entropy"
    labels = targets.dim() > 1 and targets.shape[1] > 1 and bool(((targets == 0) | (targets == 1)).all())
    return "binary_cross_entropy" if labels else "mse"


def check_one_tensor(outputs: object) -> None:
    """Check that outputs are a single tensor, as netdfl's own losses and metrics need. Raises ValueError."""
    if not hasattr(outputs, "shape"):
        what = f"the model gives {type(outputs).__name__}, where netdfl's own losses and figures take one tensor"
        remedy = "name a loss and metrics of your own that take it, or let the model return the tensor (its .logits)"
        raise ValueError(f"{what}: {remedy}")


def entropy(scores: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    """Return PyTorch's cross-entropy of scores (N, classes, ...). Raises DatasetError if a target is no such class."""
    from torch.nn.functional import cross_entropy as torchs

    try:
        return torchs(scores, targets, reduction=reduction)
    except IndexError as error:
        raise _no_class(targets, scores.shape[1]) from error


def _no_class(targets: Tensor, num_classes: int) -> DatasetError:
    found = next(each for each in targets.unique().tolist() if each != LEFT_OUT and not 0 <= each < num_classes)
    remedy = "number them from 0 on, and say how many there are: netdfl.Datasets(num_classes=...)"
    return DatasetError(f"a target is of class {found}, and the model has scores for {num_classes} classes: {remedy}")


def check_num_classes(outputs: Tensor, targets: Tensor, num_classes: int) -> None:
    """Check that outputs have a score for each of `num_classes` classes. Raises ValueError."""
    num = (outputs if either_fits(outputs, targets) else _classes_second(outputs, targets)).shape[1]
    if num < num_classes:
        shape = f"outputs of shape {tuple(outputs.shape)}, scores for {num} classes"
        raise ValueError(f"the model gives {shape}, and there are {num_classes}: let its last layer give num_classes")


def _like(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return outputs in the targets' shape: (N, 1) as (N,). Raises ValueError if more than axes of length 1 differs."""
    check_one_tensor(outputs)
    if outputs.shape == targets.shape:
        return outputs
    said, true = ([length for length in each.shape if length != 1] for each in (outputs, targets))
    if said == true:
        return outputs.reshape(targets.shape)
    shapes = f"{tuple(outputs.shape)} for targets of shape {tuple(targets.shape)}"
    if outputs.numel() == targets.numel():
        raise ValueError(f"the model gives outputs of shape {shapes}: let it give them in the targets' order of axes")
    raise ValueError(f"the model gives outputs of shape {shapes}: let it give as many numbers as there are targets")


def either_fits(outputs: Any, targets: Any) -> bool:
    """Return whether by their shapes both the second and the last axis of outputs can hold the class scores."""
    said, true = (tuple(getattr(each, "shape", ())) for each in (outputs, targets))
    return len(said) > 2 and said[:1] + said[2:] == true == said[:-1] and said[1] > 1


def on_axis(axis: int, judge: Callable[[Tensor, Tensor], T]) -> Callable[[Tensor, Tensor], T]:
    """Return the loss or metric `judge` for outputs whose class scores lie on `axis`, which shapes do not show."""
    return lambda outputs, targets: judge(outputs.movedim(axis, 1).unsqueeze(-1), targets.unsqueeze(-1))


def _classes_second(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return scores with the class axis second, as torch needs. Raises ValueError for other shapes."""
    check_one_tensor(outputs)
    shape, wanted = tuple(outputs.shape), tuple(targets.shape)
    if either_fits(outputs, targets):
        what = f"the model gives outputs of shape {shape} for classes of shape {wanted}, whose class axis may be either"
        raise ValueError(f"{what}: give sequences of another length, or name a loss and metrics of your own")
    if shape[:1] + shape[2:] == wanted and len(shape) > 1:
        return outputs
    if shape[:-1] == wanted and shape:
        return outputs.movedim(-1, 1)
    raise ValueError(
        f"the model gives outputs of shape {shape} for classes of shape {wanted}: "
        "let it give one number for each class, (N, classes, ...) or (N, ..., classes)"
    )
