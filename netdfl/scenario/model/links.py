"""The blocks `links:` and `events:`.

Each entry of `links:` has a selector of links or nodes, and the rules that it sets. Each event has a time and one
action.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, ValidationInfo, model_serializer

from netdfl.links.rules.state import StateName
from netdfl.links.schedule.compile import ACTIONS
from netdfl.links.schedule.when import KEYS, spans
from netdfl.links.spec import CORE_KEYS, LINK_KEYS, NODE_KEYS
from netdfl.links.spec import SLOTS as LINK_SLOTS
from netdfl.scenario.model.choices import Choices, nearest, refused
from netdfl.scenario.model.fields import Definition, Function, Strict, make_model
from netdfl.scenario.model.parts import Part
from netdfl.scenario.model.signatures import field_of, signature_of, summary

_HELP = {
    "loss": "Which messages vanish.",
    "latency": "How long a message is under way, beside the time that its bytes take.",
    "rate": "How fast bytes pass, and the queue before it.",
    "duplicate": "Which messages arrive twice.",
    "corrupt": "Which messages are damaged.",
    "reorder": "Which messages are overtaken by later ones.",
    "uplink": "The rate that all links from a node share.",
    "downlink": "The rate that all links to a node share.",
}


class Entry(Strict):
    """The rules of one entry of `links`; a missing key keeps the rule of a more general entry."""

    state: StateName = Field("up", description="Whether the link is up, or down in one of three ways.")

    def written(self) -> dict[str, object]:
        """Return the keys that the scenario wrote with their values, in the form that `netdfl.links.spec` reads."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}


def link_choices(name: str) -> Choices:
    """Return the field that chooses a link's rule called `name`, such as its loss model."""
    row = LINK_SLOTS[name]
    return Choices(name, lambda: row.table, row.key, default=row.default, short=(row.default, row.short), optional=True)


if TYPE_CHECKING:
    LinkEntry = Entry
else:
    _fields = {
        name: (Annotated[Part | None, link_choices(name)], Field(None, description=_HELP[name])) for name in LINK_SLOTS
    }
    LinkEntry = make_model("LinkEntry", Entry, Entry.__doc__, _fields)


def block(links: Mapping[str, Entry]) -> dict[str, dict[str, object]]:
    """Return the scenario's block `links` in the form that `netdfl.links.spec.LinksSpec` reads."""
    return {selector: entry.written() for selector, entry in links.items()}


_RELATIVE = r"\s*[x×]\s*[0-9.]+\s*"
_CHANGES: Mapping[str, tuple[str, ...]] = {"link": LINK_KEYS, "node": NODE_KEYS, "core": CORE_KEYS}


class EventChoices(Choices):
    """The field that reads an entry of `events`: time keys, the key that names the action, and the action's keys.

    The result is the entry as plain values, as `links.schedule` reads it.
    """

    def normal(self, value: object) -> object:
        """Return the value unchanged, because events have no short form."""
        return value

    def kind_of(self, value: object) -> object:
        """Return the action, such as `crash`, that the entry names by a key; None if it names none."""
        return next((key for key in value if key in ACTIONS), None) if isinstance(value, Mapping) else None

    def model(self, kind: object, directory: str = ".") -> type[BaseModel]:
        """Return the pydantic model of an event with the action `kind`. Raises PydanticCustomError if it names none."""
        if not isinstance(kind, str):
            raise refused("an event without an action", "expected one of " + ", ".join(self.names()))
        return event_model(kind)

    def validate(self, value: object, info: ValidationInfo) -> dict[str, object]:
        """Validate one entry of `events`. Raises ValidationError, or PydanticCustomError if no action is named."""
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
    """Return the pydantic model of an event with this action."""
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
