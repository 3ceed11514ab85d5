"""The `events:` list: when something happens, and one action that says what."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated

from pydantic import BaseModel, Field, ValidationInfo

from netdfl.links.rules.state import StateName
from netdfl.links.schedule.actions import ACTIONS
from netdfl.links.schedule.when import KEYS, spans
from netdfl.links.spec import LINK_KEYS, NODE_KEYS
from netdfl.scenario.model.choices import Choices, nearest, refused
from netdfl.scenario.model.fields import Definition, Function, Strict, make_model
from netdfl.scenario.model.links import link_choices
from netdfl.scenario.model.signatures import field_of, signature_of, summary

_RELATIVE = r"\s*[x×]\s*[0-9.]+\s*"
_CHANGES: Mapping[str, tuple[str, ...]] = {"link": LINK_KEYS, "node": NODE_KEYS}


class EventChoices(Choices):
    """Reads one event: the keys that say when, the key that names the action, and the action's other keys.

    What is kept is the entry as plain values, as `links.schedule` takes it.
    """

    def normal(self, value: object) -> object:
        """There is no short form."""
        return value

    def kind_of(self, value: object) -> object:
        """The action whose key the entry has."""
        return next((key for key in value if key in ACTIONS), None) if isinstance(value, Mapping) else None

    def model(self, kind: object, directory: str = ".") -> type[BaseModel]:
        """The model of an event with the action `kind`. Raises PydanticCustomError where there is none."""
        if not isinstance(kind, str):
            raise refused("an event without an action", "expected one of " + ", ".join(self.names()))
        return event_model(kind)

    def validate(self, value: object, info: ValidationInfo) -> dict[str, object]:
        """Read one entry. Raises ValidationError, or PydanticCustomError where no action is named."""
        if not isinstance(value, Mapping):
            raise refused(f"{value!r} is not an event", "a mapping, like {at: 20s, crash: 4}")
        kind = self.kind_of(value)
        if kind is None:
            written = [str(key) for key in value if key not in KEYS.values()]
            remedy = nearest(written[0], self.names()) if written else "use one of " + ", ".join(self.names())
            raise refused(f"an event without an action, with the keys {', '.join(map(str, value))}", "", remedy)
        model = self.model(kind).model_validate(dict(value), context=info.context)
        return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


EVENT = EventChoices("event", lambda: ACTIONS)


@cache
def event_model(action: str) -> type[BaseModel]:
    """The keys of an event with this action."""
    function = ACTIONS[action]
    fields = dict(field_of(spans, parameter) for parameter in signature_of(spans))
    fields |= dict(field_of(function, parameter) for parameter in signature_of(function))
    fields[action] = (fields[action][0], Field(description=summary(function)))
    if _takes_changes(function):
        fields |= {key: _change(key) for key in _CHANGES[action]}
    return make_model(f"Event_{action}", Strict, summary(function), fields)


def _takes_changes(function: Function) -> bool:
    return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def _change(key: str) -> Definition:
    if key == "state":
        return (StateName, Field("up"))
    return (Annotated[object, replace(link_choices(key), also=_RELATIVE)], Field(None))
