"""The flat form of a catalog function: a record among its parameters is written field by field."""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, fields
from typing import Any

import pytest
from algorithm_fleets import EXCHANGE
from hypothesis import given
from hypothesis import strategies as st
from method_scenarios import scenario

from netdfl.algorithms.catalog import ALGORITHMS
from netdfl.algorithms.exchange import Decay, Momentum, Parameters, Sgd, flat
from netdfl.core.errors import ScenarioError
from netdfl.core.units import PositiveFloat
from netdfl.scenario.load import loads

NAMES = [field.name for field in fields(Sgd)]
VALUES = {
    "lr": st.floats(0.01, 1),
    "lr_decay": st.floats(0.1, 1),
    "local_epochs": st.integers(1, 9),
    "local_steps": st.none() | st.integers(1, 9),
    "weight_decay": st.floats(0, 1),
    "clip_norm": st.none() | st.floats(0.1, 9),
}


def method(context: str, /, *, momentum: Momentum = 0.9, sgd: Sgd = Sgd(local_epochs=2, clip_norm=10.0)) -> Any:
    """Give back what it was given."""
    return context, momentum, sgd


@dataclass(frozen=True)
class Length(Parameters):
    local_epochs: int | None = 1
    local_steps: int | None = 7


def as_long_as(*, length: Length = Length()) -> Length:
    """Give back how long."""
    return length


@given(st.fixed_dictionaries({}, optional={**VALUES, "momentum": st.floats(0, 0.9)}))
def test_what_is_not_given_is_as_the_functions_own_record_says(written: dict[str, Any]) -> None:
    own = {name: value for name, value in written.items() if name in NAMES}
    expected = Sgd(**{"local_epochs": 2, "clip_norm": 10.0} | own)
    assert flat(method)("context", **written) == ("context", written.get("momentum", 0.9), expected)


@pytest.mark.parametrize(
    ("written", "epochs", "steps"),
    [
        ({}, None, 1),
        ({"local_epochs": 3}, 3, None),
        ({"local_steps": 2}, None, 2),
    ],
)
def test_a_method_of_one_step_trains_for_the_epochs_that_are_asked_for(written, epochs, steps) -> None:
    text = json.dumps(scenario("qg_dsgdm") | {"algorithm": {"name": "qg_dsgdm"} | written})
    loaded = loads(text, []).algorithm
    again = loads(json.dumps(scenario("qg_dsgdm") | {"algorithm": loaded.model_dump(mode="json", by_alias=True)}), [])
    for built in (loaded.build(EXCHANGE), again.algorithm.build(EXCHANGE), loaded.entry.build(EXCHANGE, **written)):
        assert (built.local.sgd.epochs, built.local.sgd.steps) == (epochs, steps)


def test_the_signature_has_the_fields_with_their_types_and_the_records_values() -> None:
    parameters = inspect.signature(flat(method)).parameters
    assert list(parameters) == ["context", *NAMES[:4], "momentum", *NAMES[4:]]
    assert (parameters["lr"].annotation, parameters["lr_decay"].annotation) == (PositiveFloat, Decay)
    assert (parameters["momentum"].annotation, parameters["momentum"].default) == (Momentum, 0.9)
    assert (parameters["local_epochs"].default, parameters["clip_norm"].default) == (2, 10.0)


def test_a_parameter_that_does_not_exist_is_refused_in_the_functions_name() -> None:
    with pytest.raises(TypeError, match=r"method\(\) got an unexpected keyword argument 'mometum'"):
        flat(method)("context", mometum=0.1)


def test_a_parameter_that_the_record_has_too_is_refused() -> None:
    def twice(*, lr: float = 1.0, sgd: Sgd = Sgd()) -> None: ...

    with pytest.raises(ValueError, match="duplicate parameter name: 'lr'"):
        flat(twice)


def test_of_two_lengths_the_one_that_is_written_counts_also_where_there_is_no_other_parameter() -> None:
    assert flat(as_long_as)(local_epochs=3) == Length(3, None)
    assert flat(as_long_as).complete({"local_epochs": 3}) == {"local_epochs": 3, "local_steps": None}  # type: ignore[attr-defined]
    assert not hasattr(flat(lambda exchange, /: exchange), "complete")


@pytest.mark.parametrize(
    ("parameter", "value", "most"), [("rho", 1e30, "1e+06"), ("lr", 1e39, "1e+30"), ("weight_decay", 1e39, "1e+30")]
)
def test_what_no_float32_can_step_by_is_refused_by_name(parameter: str, value: float, most: str) -> None:
    wild = scenario("dfedsam") | {"algorithm": {"name": "dfedsam", parameter: value}}
    with pytest.raises(ScenarioError, match=re.escape(f"algorithm.{parameter} is {value:g}, expected at most {most}")):
        loads(json.dumps(wild), [])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_method_begins_with_local_sgd(name: str) -> None:
    parameters = inspect.signature(ALGORITHMS[name].build).parameters
    assert list(parameters)[:5] == ["exchange", *NAMES[:4]]
    assert set(NAMES) < set(parameters)
