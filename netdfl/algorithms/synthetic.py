"""Methods whose server distills synthetic examples from its model's trajectory, one function each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from netdfl.algorithms.base import Algorithm
from netdfl.algorithms.exchange import Exchange, Interpolation, Parameters, Radius, Sgd
from netdfl.algorithms.late import parts
from netdfl.core.units import NonNegativeFloat, PositiveFloat, PositiveInt
from netdfl.training.siamese import TRANSFORMATIONS, Transformation

if TYPE_CHECKING:
    from netdfl.training.distill import Distiller


@dataclass(frozen=True, kw_only=True)
class Distillation(Parameters):
    """The parameters of distillation: the number of warm-up rounds before it, and its method."""

    server_lr: PositiveFloat = 1.0
    warmup_rounds: PositiveInt = 30
    per_class: PositiveInt = 20
    distil_iterations: PositiveInt = 200
    distil_steps: PositiveInt = 3
    distil_loss: Literal["normalised", "raw"] = "normalised"
    input_lr: PositiveFloat = 0.05
    rate: PositiveFloat = 0.1
    rate_lr: NonNegativeFloat = 1e-5

    def begun(self) -> partial[Distiller]:
        """Return a function that builds the distiller, given the parameters that differ between methods."""
        return partial(
            parts.Distiller,
            per_class=self.per_class,
            iterations=self.distil_iterations,
            steps=self.distil_steps,
            loss=self.distil_loss,
            input_lr=self.input_lr,
            rate=self.rate,
            rate_lr=self.rate_lr,
        )


def fedsynsam(
    exchange: Exchange,
    /,
    *,
    rho: Radius = 0.05,
    beta: Interpolation = 0.9,
    synthetic_batch: PositiveInt = 128,
    distil_optimizer: Literal["sgd", "adam"] = "adam",
    blend: Literal["ascent", "both"] = "ascent",
    distillation: Distillation = Distillation(),
    sgd: Sgd = Sgd(),
) -> Algorithm:
    """FedSynSAM: SAM whose ascent is part the gradient on synthetic examples of the whole fleet's data.

    FedSAM for `warmup_rounds`; then the server distills D_syn from its models w^0 .. w^R: it minimizes
    |w^ - w^(r+s)|^2 / |w^r - w^(r+s)|^2 over the inputs X and a, w^ <- w^ - a grad F(w^; X) s times from w^r. From
    then on g^ = beta g_i(y) + (1 - beta) g_syn(y), y <- y - lr g_i(y + rho g^ / |g^|) at every step, from w to y_i,
    and always w+ = w + server_lr mean(y_i - w). In a second reading, `blend: both`, the descent is combined too:
    y <- y - lr (beta g_i + (1 - beta) g_syn) at y + rho g^ / |g^|. Sends d numbers down and d + 1 up, and D_syn to
    every client once; clients keep D_syn, the server its models until they are distilled, then D_syn.
    `distil_steps` is s, both the rounds between two models and the steps that lead from one to the other.
    Defaults are Fashion-MNIST's; CIFAR-10 has 5 steps and sgd with input_lr 1000. Source: FedSynSAM
    Alg. 1; inputs start as Gaussian noise, with the normalized loss.
    """
    distiller = distillation.begun()(gap=distillation.distil_steps, optimizer=distil_optimizer)
    averaging = parts.Averaging(server_lr=distillation.server_lr)
    synthesis = parts.SharedSynthesis(inner=averaging, warmup=distillation.warmup_rounds, distiller=distiller)
    solver = parts.FedSynSamSolver(sgd=parts.local_sgd(sgd), rho=rho, beta=beta, batch=synthetic_batch, blend=blend)
    return parts.server(exchange, solver, synthesis, refine=synthesis)


@dataclass(frozen=True, kw_only=True)
class DynaFed(Distillation):
    """The parameters of DynaFed's server: its warm-up, its distillation, and its training on D_syn.

    `augment` are the changes that DSA may make to D_syn, in distillation and in training; they need pictures.
    """

    warmup_rounds: PositiveInt = 25
    distil_iterations: PositiveInt = 3000
    distil_steps: PositiveInt = 20
    distil_gap: PositiveInt = 3
    label_lr: PositiveFloat = 0.01
    label_scale: NonNegativeFloat = 1.0
    rate: PositiveFloat = 0.02
    tuning_steps: PositiveInt = 20
    tuning_lr: PositiveFloat = 1e-4
    augment: tuple[Transformation, ...] = TRANSFORMATIONS


def dynafed(exchange: Exchange, /, *, method: DynaFed = DynaFed(), sgd: Sgd = Sgd()) -> Algorithm:
    """DynaFed: FedAvg whose server trains each average a little on examples distilled from its trajectory.

    FedAvg, w+ = w + server_lr mean(y_i - w); after `warmup_rounds` the server distills D_syn, inputs X with soft
    labels softmax(Y), from its models: it minimizes |w^ - w*|^2 / |w^r - w*|^2 over X, Y and a,
    w^ <- w^ - a grad F(w^; D_syn) `distil_steps` times from w^r, w* a mean of models of up to `distil_gap` rounds
    later. From the next round on it takes `tuning_steps` of Adam on F(w; D_syn) after every average. In both,
    every step sees D_syn changed by DSA, by one of `augment` ([]: none; leave `flip` out where a mirrored picture
    is another thing, like digits). Sends d numbers down and d up; the server keeps its models until they are
    distilled, then D_syn, which never leaves it, clients keep nothing. Source: DynaFed (Pi et al. 2023) and its
    code; `dynafed_synonly` is what FedSynSAM's tables call DynaFed.
    """
    return _dynafed(exchange, method, sgd, only=False)


def dynafed_synonly(exchange: Exchange, /, *, method: DynaFed = DynaFed(augment=()), sgd: Sgd = Sgd()) -> Algorithm:
    """DynaFed trained only on its synthetic examples, as FedSynSAM's tables must have run it.

    As `dynafed` until D_syn is there; from then on there is no average, w <- w - tuning_lr Adam(grad F(w; D_syn))
    `tuning_steps` times a round, and no client takes part. Sends d numbers down and d up during the warm-up, then
    nothing; keeps what `dynafed` keeps, its models and then D_syn at the server. Source: FedSynSAM, which says that
    DynaFed "relies solely on the synthetic dataset", and states no augmentation: so by default there is none.
    """
    return _dynafed(exchange, method, sgd, only=True)


def _dynafed(exchange: Exchange, method: DynaFed, sgd: Sgd, *, only: bool) -> Algorithm:
    distiller = method.begun()(
        gap=method.distil_gap,
        optimizer="adam",
        label_lr=method.label_lr,
        label_scale=method.label_scale,
        averaged=True,
        augment=method.augment,
    )
    synthesis = parts.TunedSynthesis(
        inner=parts.Averaging(server_lr=method.server_lr),
        warmup=method.warmup_rounds,
        distiller=distiller,
        tuning=parts.Tuning(steps=method.tuning_steps, lr=method.tuning_lr, augment=method.augment),
        only=only,
    )
    return parts.server(exchange, parts.local_sgd(sgd), synthesis, refine=synthesis)
