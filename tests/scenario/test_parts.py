"""Models made from signatures: types, units, bounds, defaults, and modules that are read but not imported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from pydantic import ValidationError

from netdfl.core.units import Bound, PositiveInt, Probability, SizeBytes, TimeNs
from netdfl.scenario.model.fields import make_model
from netdfl.scenario.model.parts import Part, model_of
from netdfl.scenario.model.schema import Expectation


@dataclass(frozen=True)
class Window:
    """A dataclass as a parameter."""

    start: PositiveInt
    length: PositiveInt | None = None


def example(
    context: object,
    /,
    *,
    after: TimeNs,
    share: Probability = 0.5,
    size: SizeBytes | None = None,
    factor: Annotated[float, Bound(gt=0, le=2)] = 1.0,
    mode: Literal["fast", "slow"] = "fast",
    widths: list[PositiveInt] = [64],  # noqa: B006 - as parts write it
    windows: list[Window] = [],  # noqa: B006 - as parts write it
    from_: int = 0,
    copy: bool = False,
) -> dict[str, Any]:
    """Say what came."""
    return {key: value for key, value in locals().items() if key != "context"} | {"context": context}


MODEL = model_of(example, "example")


def read(**written: Any) -> Part:
    return MODEL.model_validate({"kind": "example", **written})


def test_build_gets_the_context_and_base_units() -> None:
    part = read(after="20ms", share="5%", size="1KiB", widths=[3], windows=[{"start": 2}], **{"from": 4, "copy": True})
    built = part.build("context")
    assert built["context"] == "context"
    assert built["after"] == 20_000_000
    assert built["share"] == 0.05
    assert built["size"] == 1024
    assert built["windows"] == [Window(2)]
    assert (built["from_"], built["copy"], built["mode"], built["factor"]) == (4, True, "fast", 1.0)


def test_what_is_written_is_read_again() -> None:
    part = read(after="1.5s", size="7B", windows=[{"start": 1, "length": 3}], **{"from": 9})
    dumped = part.model_dump(mode="json", by_alias=True)
    assert dumped["after"] == "1.5s"
    assert dumped["from"] == 9
    assert MODEL.model_validate(dumped) == part


@pytest.mark.parametrize(
    ("written", "place"),
    [
        ({}, ("after",)),
        ({"after": 5}, ("after",)),
        ({"after": "1s", "share": 2}, ("share",)),
        ({"after": "1s", "factor": 0}, ("factor",)),
        ({"after": "1s", "factor": 2.1}, ("factor",)),
        ({"after": "1s", "mode": "medium"}, ("mode",)),
        ({"after": "1s", "widths": [3, 0]}, ("widths", 1)),
        ({"after": "1s", "widths": 3}, ("widths",)),
        ({"after": "1s", "windows": [{"start": 0}]}, ("windows", 0, "start")),
        ({"after": "1s", "windows": [{"start": 1, "stop": 3}]}, ("windows", 0, "stop")),
        ({"after": "1s", "copy": 1}, ("copy",)),
        ({"after": "1s", "from": True}, ("from",)),
        ({"after": "1s", "from_": 1}, ("from_",)),
        ({"after": "1s", "context": 1}, ("context",)),
    ],
)
def test_what_is_refused_and_where(written: dict[str, Any], place: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError) as caught:
        read(**written)
    assert [error["loc"] for error in caught.value.errors()] == [place]


def test_a_parameter_without_a_type_is_refused() -> None:
    def untyped(*, x=1):  # type: ignore[no-untyped-def]
        return x

    with pytest.raises(TypeError, match=r"'x' .* has no type"):
        model_of(untyped, "untyped")


def test_a_parameter_may_have_any_name_that_is_no_key() -> None:
    def noise(*, kind: str = "white", scale: float = 1.0) -> dict[str, Any]:
        return {"kind": kind, "scale": scale}

    made = model_of(noise, "noise", "name")
    part = made.model_validate({"name": "noise", "kind": "pink"})
    assert (part.kind, part.build()) == ("noise", {"kind": "pink", "scale": 1.0})
    assert part.model_dump(by_alias=True) == {"name": "noise", "kind": "pink", "scale": 1.0}
    with pytest.raises(TypeError, match="'kind' has the name of a key there"):
        model_of(noise, "noise")


def test_a_made_model_belongs_where_its_base_is_defined() -> None:
    """Older pydantic evaluates the types of inherited keys in the names of the model's own module."""
    made = make_model("Made", Expectation, "", {})
    assert made.__module__ == Expectation.__module__
