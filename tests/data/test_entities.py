"""The phrasebook's sentences with names, numbers, dates and codes."""

import itertools

import pytest

from mt.data.phrasebook import SPLITS, entities
from mt.data.phrasebook.entities import SLOT, Finder


@pytest.mark.parametrize("split", SPLITS)
def test_a_carrier_has_the_same_slots_on_both_sides(split: str) -> None:
    table = entities.carriers(split)
    assert len(table) > (300 if split == "train" else 10)
    for english, german in table:
        slots = [{match[0] for match in SLOT.finditer(side)} for side in (english, german)]
        assert slots[0] == slots[1], english


def test_no_carrier_is_in_two_splits() -> None:
    for one, other in itertools.combinations(SPLITS, 2):
        assert not set(entities.carriers(one)) & set(entities.carriers(other))


@pytest.mark.parametrize("split", SPLITS)
def test_examples_are_always_the_same(split: str) -> None:
    first, second = (list(itertools.islice(entities.examples(split), 50)) for _ in range(2))
    assert first == second
    for example in first:
        assert not SLOT.search(example.english + example.german)
        for entity in example.entities:
            assert entity.german[0].lower() in example.german.lower()


def test_held_out_values_are_not_in_examples_of_training() -> None:
    # A few are drawn all the same, which is why load("train") looks for them again.
    held_out = Finder(
        entity.english
        for example in itertools.islice(entities.examples("test"), 300)
        for entity in example.entities
        if entity.own
    )
    assert held_out.finds(next(iter(held_out.values.values()))[0])
    found = sum(
        held_out.finds(example.english)
        for example in itertools.islice(entities.examples("train"), 1000)
    )
    assert found < 20


def test_a_finder_finds_whole_values() -> None:
    finder = Finder(["Ann Smith", "KX-17"])
    assert finder.finds("I met Ann Smith.")
    assert finder.finds("The code is KX-17!")
    assert not finder.finds("I met Joann Smithson.")
    assert not Finder(["abc"]).finds("abc")  # too short to tell anything
