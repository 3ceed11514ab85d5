"""The package is written in the field's words: a class is a noun of one module, a docstring says what it is."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests import words


def clean(package: str) -> bool:
    return package in words.CLEAN


def test_what_is_clean_is_a_package() -> None:
    assert words.packages() >= words.CLEAN


def test_one_class_name_stands_in_one_module() -> None:
    known = {**words.SHARED, **words.PROTOCOLS}
    found = {
        name: sorted(each.module for each in all_of)
        for name, all_of in words.shared_names().items()
        if name not in known and any(clean(each.package) for each in all_of)
    }
    assert found == {}


def test_the_names_that_are_shared_are_few_and_each_has_a_reason() -> None:
    assert len(words.SHARED) <= words.MOST_SHARED
    assert all({**words.SHARED, **words.PROTOCOLS}.values())
    assert set(words.shared_names()) >= {*words.SHARED, *words.PROTOCOLS}


def test_a_class_is_a_noun_and_no_participle() -> None:
    found = [each for each in words.classes() if clean(each.package) and words.is_no_noun(each.name)]
    assert [each for each in found if each.name not in words.NOUNS] == []


def test_each_noun_that_looks_like_a_participle_is_there_and_has_a_reason() -> None:
    assert all(words.NOUNS.values())
    assert {each.name for each in words.classes() if words.is_no_noun(each.name)} >= set(words.NOUNS)


def test_the_first_line_of_a_docstring_stands_by_itself() -> None:
    found = [(each.place, faults) for each in words.docstrings() if (faults := words.faults_of(each.text))]
    assert [place for place, _ in found if clean(words.package_of(words.NETDFL / place.partition(":")[0]))] == []


@pytest.mark.parametrize("name", ["Told", "_Kept", "Ran", "GivenUp", "HandedIn", "Fitting", "Beside"])
def test_these_names_are_no_nouns(name: str) -> None:
    assert words.is_no_noun(name)


@pytest.mark.parametrize("name", ["Outcome", "EndedRound", "HeldWeight", "GatedMailbox", "Seed"])
def test_these_names_are_nouns(name: str) -> None:
    assert not words.is_no_noun(name)


@pytest.mark.parametrize(
    "text",
    [
        "What a node sends.",
        "See `Recorder`.",
        "The payload, of whom it is for.",
        "The rows, and those of others.",
        "A sink that is told of losses.",
        "Answers whoever knows the token.",
        "Whether that was so.",
        "It is over.",
        "Give the colour of a node.",
    ],
)
def test_these_docstrings_are_faulty(text: str) -> None:
    assert words.faults_of(text)


def test_plain_docstrings_are_not() -> None:
    assert not words.faults_of("Return the payload if `dst` is a destination; raise KeyError otherwise.")


def test_an_old_name_that_users_may_write_is_the_new_one_with_a_warning() -> None:
    from netdfl.running import judged

    with pytest.warns(DeprecationWarning, match="judged.Finished is called FinishedRun now"):
        assert judged.Finished is judged.FinishedRun  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = judged.Other  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("netdfl.compression.base", "Adding", "AddingCompressor"),
        ("netdfl.compression.base", "Encoded", "EncodedVector"),
        ("netdfl.mixing.base", "Around", "AggregationWrapper"),
        ("netdfl.mixing.base", "Counting", "MeteredMixing"),
        ("netdfl.mixing.base", "Mixed", "MixResult"),
        ("netdfl.mixing.base", "Remembering", "StatefulAggregation"),
        ("netdfl.testing.worlds", "Differs", "WorldDifference"),
    ],
)
def test_old_names_that_own_parts_import_are_the_new_ones(module: str, old: str, new: str) -> None:
    found = import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is called {new} now"):
        assert getattr(found, old) is getattr(found, new)
