"""The `links:` block: an entry for each selector of links or nodes, with the rules that it sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from netdfl.links.rules.state import StateName
from netdfl.links.spec import SLOTS as LINK_SLOTS
from netdfl.scenario.model.choices import Choices
from netdfl.scenario.model.fields import Strict, make_model
from netdfl.scenario.model.parts import Part

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
    """The rules that one entry sets; a key that is not written keeps what a more general entry says."""

    state: StateName = Field("up", description="Whether the link is up, or down in one of three ways.")

    def written(self) -> dict[str, object]:
        """The keys that the scenario wrote, as `links.spec` takes them."""
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}

    @model_serializer(mode="wrap")
    def _dump(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {key: value for key, value in handler(self).items() if key in self.model_fields_set}


def link_choices(name: str) -> Choices:
    """What one key of a link may be."""
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
    """The block as `netdfl.links.spec.LinksSpec` takes it."""
    return {selector: entry.written() for selector, entry in links.items()}
