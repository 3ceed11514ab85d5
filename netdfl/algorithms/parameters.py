"""The ranges of the catalog's parameters."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from netdfl.core.units import Bound

Decay: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Momentum: TypeAlias = Annotated[float, Bound(ge=0, lt=1)]
Radius: TypeAlias = Annotated[float, Bound(ge=0)]
Interpolation: TypeAlias = Annotated[float, Bound(ge=0, le=1)]
Asked: TypeAlias = Literal["random", "successor"]
Between: TypeAlias = Literal["train", "gossip"]
Layout: TypeAlias = Literal["erk", "uniform"]
Regrow: TypeAlias = Literal["gradient", "random"]
Share: TypeAlias = Annotated[float, Bound(gt=0, le=1)]
Optimizer: TypeAlias = Literal["sgd", "adam"]
DistilLoss: TypeAlias = Literal["normalised", "raw"]
