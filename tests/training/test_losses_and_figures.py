"""Every loss and figure of the catalog against its formula, written out number by number."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from netdfl.training.classification import Answers
from netdfl.training.data.own import Datasets, shared
from netdfl.training.tasks.losses import LEFT_OUT, LOSSES, METRICS, either_fits, fitting_loss, on_axis

NUMBERS = st.floats(-4, 4, width=16)
ROWS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.tuples(*[st.tuples(NUMBERS, NUMBERS)] * width), min_size=2, max_size=6)
)
FORMULAS: dict[str, Callable[[Sequence[float], Sequence[float]], float]] = {
    "mse": lambda said, true: sum((a - b) ** 2 for a, b in zip(said, true, strict=True)) / len(said),
    "l1": lambda said, true: sum(abs(a - b) for a, b in zip(said, true, strict=True)) / len(said),
    "rmse": lambda said, true: math.sqrt(FORMULAS["mse"](said, true)),
    "mae": lambda said, true: FORMULAS["l1"](said, true),
}


@given(ROWS, st.sampled_from(sorted(FORMULAS)))
def test_figures_of_real_targets_are_their_formulas(rows: list[tuple[tuple[float, float], ...]], name: str) -> None:
    both = torch.tensor(rows)
    said, true = both[..., 0], both[..., 1]
    found = ({**LOSSES, **METRICS})[name]
    expected = FORMULAS[name](said.flatten().tolist(), true.flatten().tolist())
    assert float(found(said, true)) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert float(found(said.unsqueeze(-1), true)) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_r2_is_the_share_of_each_columns_variance_that_is_explained() -> None:
    true = torch.tensor([[1.0, 10.0], [2.0, 30.0], [6.0, 20.0]])  # means 3 and 20: 4 + 1 + 9 and 100 + 100
    assert METRICS["r2"](true, true) == 1
    assert METRICS["r2"](torch.tensor([3.0, 20.0]).expand(3, 2), true) == pytest.approx(0)
    assert METRICS["r2"](true + torch.tensor([1.0, 2.0]), true) == pytest.approx(1 - (3 * 1 + 3 * 4) / 214)


LABELS = st.lists(st.tuples(NUMBERS, st.booleans()), min_size=1, max_size=8)


@given(LABELS)
@example([(0.0, True), (0.0, False), (1.0, True)])
@example([(-1.0, False)])
def test_figures_of_labels_count_each_answer(rows: list[tuple[float, bool]]) -> None:
    said, true = torch.tensor([a for a, _ in rows]), torch.tensor([float(b) for _, b in rows])
    both = sum(a > 0 and b for a, b in rows)
    either = sum(a > 0 for a, _ in rows) + sum(b for _, b in rows)
    assert METRICS["label_accuracy"](said, true) == pytest.approx(sum((a > 0) == b for a, b in rows) / len(rows))
    assert METRICS["f1"](said, true) == pytest.approx(2 * both / either if either else 0)
    plain = [math.log1p(math.exp(-a)) if b else math.log1p(math.exp(a)) for a, b in rows]
    assert float(LOSSES["binary_cross_entropy"](said, true)) == pytest.approx(sum(plain) / len(rows), rel=1e-4)


@st.composite
def scores(draw: st.DrawFn) -> tuple[list[list[float]], list[int]]:
    """A row of scores for each target, no two of them equal; some targets are left out, one at least is not."""
    classes = draw(st.integers(2, 4))
    row = st.permutations([float(i) for i in range(classes)])
    targets = draw(st.lists(st.sampled_from([*range(classes), LEFT_OUT]), min_size=1, max_size=6))
    targets.append(draw(st.integers(0, classes - 1)))
    return [draw(row) for _ in targets], targets


@given(scores(), st.sampled_from(["plain", "second", "last"]))
def test_figures_of_classes_count_what_is_not_left_out(case: tuple[list[list[float]], list[int]], form: str) -> None:
    rows, targets = case
    said, true = [max(range(len(row)), key=row.__getitem__) for row in rows], torch.tensor(targets)
    outputs = torch.tensor(rows)
    if form != "plain":
        true = true.unsqueeze(0)
        outputs = outputs.T.unsqueeze(0) if form == "second" else outputs.unsqueeze(0)
    names = ["cross_entropy", "accuracy", "mean_iou", "perplexity"]
    found = {name: ({**LOSSES, **METRICS})[name] for name in names}
    if either_fits(outputs, true):
        for name in names:
            with pytest.raises(ValueError, match="whose class axis may be either: give sequences of another length"):
                found[name](outputs, true)
        found = {name: on_axis(1 if form == "second" else -1, each) for name, each in found.items()}
    kept = [(a, b) for a, b in zip(said, targets, strict=True) if b != LEFT_OUT]
    assert found["accuracy"](outputs, true) == pytest.approx(sum(a == b for a, b in kept) / len(kept))
    shares = []
    for label in range(len(rows[0])):
        union = sum(label in pair for pair in kept)
        if union:
            shares.append(sum(a == b == label for a, b in kept) / union)
    assert found["mean_iou"](outputs, true) == pytest.approx(sum(shares) / len(shares))
    plain = [
        math.log(sum(map(math.exp, row))) - row[label]
        for row, label in zip(rows, targets, strict=True)
        if label != LEFT_OUT
    ]
    assert float(found["cross_entropy"](outputs, true)) == pytest.approx(sum(plain) / len(plain), rel=1e-5)
    assert found["perplexity"](outputs, true) == pytest.approx(math.exp(sum(plain) / len(plain)), rel=1e-4)


@pytest.mark.parametrize(
    ("targets", "loss"),
    [
        (torch.tensor([0, 3]), "cross_entropy"),
        (torch.tensor([[0, 1], [1, 0]]), "cross_entropy"),
        (torch.tensor([[0.0, 1.0], [1.0, 0.0]]), "binary_cross_entropy"),
        (torch.tensor([[0.0, 1.0], [1.0, 0.5]]), "mse"),
        (torch.tensor([[0.0], [1.0]]), "mse"),
        (torch.tensor([0.0, 1.0]), "mse"),
    ],
)
def test_the_loss_that_fits_goes_by_the_targets(targets: Tensor, loss: str) -> None:
    assert fitting_loss(targets) == loss


OF_NUMBERS = ["mse", "l1", "binary_cross_entropy", "mae", "rmse", "r2", "label_accuracy", "f1"]


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize(
    ("outputs", "targets"), [((4, 3, 8), (4, 8, 3)), ((1, 3, 8), (1, 8, 3)), ((8, 4), (4, 8)), ((4, 6), (4, 2, 3))]
)
def test_outputs_whose_axes_lie_otherwise_are_refused(
    name: str, outputs: tuple[int, ...], targets: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=f"outputs of shape .*{outputs[-1]}.* for targets .*: let it give them in the"):
        ({**LOSSES, **METRICS})[name](torch.zeros(outputs), torch.zeros(targets))


@pytest.mark.parametrize("name", OF_NUMBERS)
@pytest.mark.parametrize(("outputs", "targets"), [((4, 1, 3), (4, 3)), ((5,), (5, 1)), ((), (1,)), ((8,), (1, 8))])
def test_axes_of_length_one_may_lack(name: str, outputs: tuple[int, ...], targets: tuple[int, ...]) -> None:
    found = ({**LOSSES, **METRICS})[name]
    said, true = torch.rand(targets), torch.ones(targets)
    assert float(found(said.reshape(outputs), true)) == pytest.approx(float(found(said, true)), nan_ok=True)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_another_number_of_outputs_than_targets_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"outputs of shape \(3, 2\) for targets of shape \(3,\)"):
        ({**LOSSES, **METRICS})[name](torch.zeros(3, 2), torch.zeros(3))


@pytest.mark.parametrize("name", ["cross_entropy", "accuracy", "mean_iou", "perplexity"])
@pytest.mark.parametrize("shape", [(3,), (2, 4), (3, 4, 1), (1, 3, 4)])
def test_scores_that_fit_no_classes_are_refused(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="let it give one number for each class"):
        ({**LOSSES, **METRICS})[name](torch.zeros(shape), torch.zeros(3, dtype=torch.long))


COUNTED = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=10)


@given(COUNTED, st.lists(st.integers(0, 5), min_size=4, max_size=4))
@example([(0, True), (1, False)], [0, 0, 3, 0])
@example([(2, True), (2, False), (3, True)], [0, 0, 3, 1])
def test_the_accuracy_to_expect_weighs_the_labels_that_samples_have(
    samples: list[tuple[int, bool]], counts: list[int]
) -> None:
    answers = Answers(torch.tensor([right for _, right in samples]), 0.0)
    found = answers.accuracy_for(torch.tensor([label for label, _ in samples]), torch.tensor(counts))
    shares = {label: [right for each, right in samples if each == label] for label in {label for label, _ in samples}}
    total = sum(counts[label] for label in shares)
    expected = [counts[label] * sum(rights) / len(rights) for label, rights in shares.items()]
    assert found == (pytest.approx(sum(expected) / total) if total else None)
    assert answers.accuracy == pytest.approx(sum(right for _, right in samples) / len(samples))


@pytest.mark.parametrize(
    ("targets", "classes"),
    [
        (torch.tensor([0, 2, 1, 0]), 3),
        (torch.tensor([[0, 4], [1, 0], [0, 0], [2, 2]]), 5),
        (torch.tensor([0.0, 2.0, 1.0, 0.0]), 0),
        (torch.zeros(4, 2), 0),
    ],
)
def test_the_number_of_classes_is_that_of_whole_targets(targets: Tensor, classes: int) -> None:
    assert shared(Datasets(train=(torch.zeros(4, 3), targets))).num_classes == classes
