"""Tags and a note that somebody gave to a run, kept in the run's folder beside its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, TypeAdapter, with_config
from typing_extensions import TypedDict

from netdfl.core.errors import InputError
from netdfl.core.files import write_whole, writing
from netdfl.record.forms import OPEN, read_form
from netdfl.record.plain_json import dump_json

FILE = "labels.json"
MOST_TAGS, MOST_TAG, MOST_NOTE = 20, 60, 4000


@with_config(OPEN)
class LabelsForm(TypedDict, total=False):
    """The JSON keys of the file `labels.json`, which has the tags and the note of a run."""

    tags: Annotated[list[Annotated[str, Field(strict=True, max_length=MOST_TAG)]], Field(max_length=MOST_TAGS)]
    note: Annotated[str, Field(strict=True, max_length=MOST_NOTE)]
    archived: Annotated[bool, Field(strict=True)]


LABELS: TypeAdapter[LabelsForm] = TypeAdapter(LabelsForm)


@dataclass(frozen=True, slots=True)
class Labels:
    """The labels of a run: tags, a note, and whether it is archived, so that lists leave it out unless asked."""

    tags: Sequence[str] = ()
    note: str = ""
    archived: bool = False

    @classmethod
    def of(cls, form: LabelsForm) -> Self:
        """Return the labels in `form`, the contents of a file `labels.json`."""
        return cls(tuple(form.get("tags", ())), form.get("note", ""), form.get("archived", False))

    def changed(
        self,
        add: Iterable[str] = (),
        remove: Iterable[str] = (),
        note: str | None = None,
        archived: bool | None = None,
    ) -> Labels:
        """Return these labels with tags added and removed. A `note` or `archived` of None stays as it is.

        Raises InputError for a tag or a note that is too long, or for too many tags.
        """
        gone = {_checked(tag) for tag in remove}
        tags = sorted({*self.tags, *map(_checked, add)} - gone)
        if len(tags) > MOST_TAGS:
            raise InputError(f"a run has at most {MOST_TAGS} tags, and this would make {len(tags)}; remove some")
        if note is not None and len(note) > MOST_NOTE:
            raise InputError(f"a note has at most {MOST_NOTE} letters, and this one has {len(note)}; shorten it")
        return Labels(
            tuple(tags),
            self.note if note is None else note.strip(),
            self.archived if archived is None else archived,
        )


NO_LABELS = Labels()


def _checked(tag: str) -> str:
    tidy = tag.strip()
    if not tidy or len(tidy) > MOST_TAG or "," in tidy or not tidy.isprintable():
        raise InputError(f"{tag[:80]!r} is no tag; write up to {MOST_TAG} letters on one line without a comma")
    return tidy


def read_labels(run: Path) -> Labels:
    """Return the labels of a run; empty ones if it has no file of labels. Raises InputError if the file is damaged."""
    found = read_form(run / FILE, LABELS)
    return NO_LABELS if found is None else Labels.of(found)


def write_labels(run: Path, labels: Labels) -> None:
    """Write the labels of a run to a file in its directory. Raises InputError if the disk refuses."""
    form = {"tags": list(labels.tags), "note": labels.note, "archived": labels.archived}
    with writing(run / FILE):
        write_whole(run / FILE, (dump_json(form, indent=1) + "\n").encode())
