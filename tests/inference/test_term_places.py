"""A term takes the place of the word that the model would write for it."""

from collections.abc import Sequence

import pytest
import torch

from mt.data.special_ids import EOS
from mt.inference import translator as translators
from mt.inference.alignment import Aligner
from mt.inference.constraints import Constraints, Vocabulary
from mt.inference.glossary import Glossary
from mt.inference.inputs import Input
from mt.inference.options import SearchOptions
from mt.inference.required_tokens import RequiredTokens
from mt.inference.sentence_search import ConstrainedSearch, SentenceSearch
from mt.inference.term_places import (
    MOST_ATTEMPTS,
    lacks_items,
    may_stand_elsewhere,
    with_term_in_place,
)
from mt.inference.terms import SearchTerms, TermRules, Terms
from mt.inference.translator import Translator

HOUSE = TermRules(Glossary([("house", ["Gebäude"])]))
PIECES = ["<pad>", "<unk>", "<s>", "</s>", "▁Das", "▁Haus", "▁ist", "▁groß", "▁Gebäude", "n", "."]
DAS, HAUS, IST, GROSS, GEBAEUDE, N, DOT = range(4, 11)
ENGLISH = ["▁the", "▁house", "▁is", "▁big", "."]  # ids from 20
VOCABULARY = Vocabulary(PIECES)


class Pieces:
    """A tokenizer as far as places need one: sources have ids from 20."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [ENGLISH[i - 20] if i >= 20 else PIECES[i] for i in ids]


def source(text: str = "the house is big.", prefix: Sequence[int] = ()) -> Input:
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE], [GEBAEUDE, N]]])
    start = text.find("house")
    terms = SearchTerms(
        constraints, [["Gebäude", "Gebäuden"]], False, frozenset(), ((start, start + 5),), ("",)
    )
    return Input([20, 21, 22, 23, 24], False, list(prefix), text, terms)


def attention(*rows: int) -> torch.Tensor:
    """Each token, of those without eos, attends to one position of the source."""
    weights = torch.zeros(1, 1, len(rows) + 1, 6)
    for token, position in enumerate(rows):
        weights[0, 0, token, position] = 1.0
    return weights


def placed(own: Input, output: list[int], *rows: int) -> Input | None:
    aligner = Aligner([(0, 0)], shifted=False)
    return with_term_in_place(own, output, attention(*rows), aligner, Pieces())  # type: ignore[arg-type]


MISPLACED = [DAS, HAUS, IST, GROSS, GEBAEUDE, DOT]  # the term attends to the end


def test_the_word_that_renders_the_source_of_a_term_gives_up_its_place() -> None:
    again = placed(source(), MISPLACED, 0, 1, 2, 3, 5, 4)
    assert again is not None
    assert again.prefix == []  # "Das" may have to become "Die"
    assert again.constraints is not None
    assert again.constraints.begin == (0, 1)
    assert again.constraints.banned == ((HAUS,),)
    assert source().constraints.begin is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("own", "output", "rows"),
    [
        (source(), [DAS, GEBAEUDE, IST, GROSS, DOT], (0, 1, 2, 3, 4)),  # it stands there
        (source(), [DAS, HAUS, IST, GROSS, GEBAEUDE, DOT], (0, 3, 2, 3, 5, 4)),  # of another word
        (source(prefix=[DAS, HAUS]), MISPLACED, (0, 1, 2, 3, 5, 4)),  # the caller's word
        (source("the house is big!"), MISPLACED, (0, 1, 2, 3, 5, 4)),  # the ids spell another text
        (source(), [DAS, DOT, GEBAEUDE], (0, 1, 5)),  # a mark is no word
        (source(), [GEBAEUDE, HAUS, IST, GROSS, DOT], (5, 1, 2, 3, 4)),  # the term comes before
    ],
)
def test_else_the_search_stands(own: Input, output: list[int], rows: tuple[int, ...]) -> None:
    assert placed(own, output, *rows) is None


def test_blanks_and_capitals_of_a_line_do_not_matter() -> None:
    assert placed(source("  the house is big. "), MISPLACED, 0, 1, 2, 3, 5, 4) is not None
    assert placed(source("The house IS big."), MISPLACED, 0, 1, 2, 3, 5, 4) is not None


def test_a_number_begins_with_its_blank() -> None:
    """Digits are pieces of their own, and so is the blank before them."""
    pieces = [*PIECES, "▁", "1", "2"]
    blank, one, two = range(len(PIECES), len(pieces))

    class Digits(Pieces):
        def pieces(self, ids: Sequence[int]) -> list[str]:
            return [ENGLISH[i - 20] if i >= 20 else pieces[i] for i in ids]

    terms = source().terms
    assert terms is not None
    constraints = Constraints(Vocabulary(pieces), [[[blank, two, one]]])
    own = source()._replace(terms=terms._replace(constraints=constraints))
    output = [DAS, IST, blank, one, two, blank, two, one]
    weights = attention(0, 2, 1, 1, 1, 5, 5, 5)
    again = with_term_in_place(own, output, weights, Aligner([(0, 0)], shifted=False), Digits())  # type: ignore[arg-type]
    assert again is not None
    assert again.prefix == [DAS, IST]  # no article
    assert again.constraints is not None
    assert again.constraints.begin == (0, 2)
    assert again.constraints.banned == ((one, two),)


def test_a_term_in_quotation_marks_takes_no_blank(everyday: Translator) -> None:
    rules = TermRules(Glossary([("Save", ["Sichern"]), ("vehicle", ["Kraftwagen"])]))
    lines = {
        'Press the "Save" button.': "Taste „Sichern“ drücken.",
        "The car (vehicle) was very expensive.": "Das Auto (Kraftwagen) war sehr teuer.",
    }
    results = everyday.translate(list(lines), terms=rules)
    assert [result.text for result in results] == list(lines.values())


def test_the_first_word_gives_way_first(everyday: Translator) -> None:
    """So the other term can follow it, whatever their order in the source."""
    lines = {
        "The doctor's house is old.": "Das Gebäude des Mediziners ist alt.",
        'The "house" of my doctor is old.': "Das „Gebäude“ meines Mediziners ist alt.",
    }
    results = everyday.translate(list(lines), terms=RULES)
    assert [result.text for result in results] == list(lines.values())


def test_no_other_term_is_cut() -> None:
    """The word stands right after another term, which the new prefix keeps whole."""
    constraints = Constraints(VOCABULARY, [[[GROSS, N]], [[GEBAEUDE]]])
    terms = SearchTerms(
        constraints, [["großn"], ["Gebäude"]], False, frozenset(), ((11, 14), (4, 9)), ("", "")
    )
    own = source()._replace(terms=terms)
    again = placed(own, [DAS, GROSS, N, HAUS, GEBAEUDE, DOT], 0, 3, 3, 1, 5, 4)
    assert again is not None
    assert again.prefix == [DAS, GROSS, N]


def test_a_prefix_that_holds_a_term_does_not_lift_the_limit() -> None:
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE, N, N]], [[HAUS]]])
    options = SearchOptions(max_length=4)
    for prefix, limit in (([DAS], 5), ([GEBAEUDE, N, N], 4), ([GEBAEUDE], 4), ([HAUS, DOT], 5)):
        search = SentenceSearch.begin([20, 21], options, prefix, constraints)
        assert search.limit == limit, prefix


def test_the_best_is_not_dropped_where_the_source_is_longer_than_the_limit() -> None:
    """The log P of a term is divided by the penalty of the source."""
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE]]])
    options = SearchOptions(beam_size=1, alpha=1.0, max_length=2)
    search = SentenceSearch.begin([20] * 20, options, (), constraints)
    search.advance([(-10.0, 0, GEBAEUDE, -10.0)])
    search.advance([(-10.01, 0, DOT, -0.01), (-10.1, 0, EOS, -0.1)])
    assert len(search.alive) == 1
    search.advance([(-10.02, 0, EOS, -0.01)])
    ((ids, score, *_),) = search.hypotheses()
    assert ids == [GEBAEUDE, DOT]
    assert score == pytest.approx(-10 / (26 / 6) - 0.02 / (8 / 6))


def test_only_terms_whose_place_in_the_text_is_known_are_moved_and_not_for_ever() -> None:
    own = source()
    assert elsewhere(own)
    assert own.terms is not None
    assert not elsewhere(own._replace(terms=None))
    assert not elsewhere(own._replace(terms=own.terms._replace(spans=(None,))))
    assert elsewhere(own._replace(attempt=MOST_ATTEMPTS - 2))
    assert not elsewhere(own._replace(attempt=MOST_ATTEMPTS - 1))


def elsewhere(own: Input, output: Sequence[int] = (DAS, HAUS)) -> bool:
    return may_stand_elsewhere(own, list(output), Pieces())  # type: ignore[arg-type]


class Digits(Pieces):
    """The number 12 in the source has id 21, in an output the ids 11, 12 and 13."""

    def pieces(self, ids: Sequence[int]) -> list[str]:
        names = {11: "▁", 12: "1", 13: "2", 21: "▁12"}
        return [names.get(i) or super(Digits, self).pieces([i])[0] for i in ids]

    def decode(self, outputs: Sequence[Sequence[int]]) -> list[str]:
        return ["".join(self.pieces(ids)).replace("▁", " ").strip() for ids in outputs]


def number_12() -> Input:
    vocabulary = Vocabulary([*PIECES, "▁", "1", "2"])
    constraints = Constraints(vocabulary, [[[11, 12, 13]]])
    terms = SearchTerms(constraints, [["12"]], False, frozenset(), ((4, 6),), ("number",))
    return Input([20, 21, 22, 23, 24], False, [], "the 12 is big.", terms)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([DAS, 11, 12, 13, IST], False),
        ([DAS, IST, GROSS, 11, 12, 13], False),
        ([DAS, 11, 13, IST, 11, 12, 13], True),
    ],
)
def test_a_number_is_moved_if_the_output_has_other_digits(
    output: list[int], expected: bool
) -> None:
    assert may_stand_elsewhere(number_12(), output, Digits()) is expected  # type: ignore[arg-type]


def test_what_is_kept_is_searched_without_at_first() -> None:
    first = number_12()
    assert first.constraints is None
    assert not lacks_items(first, "Das 12 ist groß.")
    assert lacks_items(first, "Das ist groß.")
    again = first._replace(attempt=1)
    assert again.constraints is not None
    assert not lacks_items(again, "Das ist groß.")
    assert source().constraints is not None  # a glossary's term does not come by itself


def test_code_takes_the_place_of_a_word_and_of_the_quote_before_it() -> None:
    class Quoted(Pieces):
        def pieces(self, ids: Sequence[int]) -> list[str]:
            names = {11: "▁„", 12: "Haus", 13: "“", 14: "▁`", 15: "house", 16: "`"}
            return [names.get(i) or super(Quoted, self).pieces([i])[0] for i in ids]

    vocabulary = Vocabulary([*PIECES, "▁„", "Haus", "“", "▁`", "house", "`"])
    constraints = Constraints(vocabulary, [[[14, 15, 16]]])
    terms = SearchTerms(constraints, [["`house`"]], False, frozenset(), ((4, 11),), ("code",))
    own = Input([20, 14, 15, 16, 22, 23, 24], False, [], "the `house` is big.", terms)
    rows = (0, 1, 2, 3, 4, 5, 6, 6, 6)
    weights = torch.zeros(1, 1, len(rows) + 1, 8)
    for token, position in enumerate(rows):
        weights[0, 0, token, position] = 1.0
    output = [DAS, 11, 12, 13, IST, GROSS, 14, 15, 16]
    aligner = Aligner([(0, 0)], shifted=False)
    again = with_term_in_place(own, output, weights, aligner, Quoted())  # type: ignore[arg-type]
    assert again is not None
    assert again.constraints is not None
    assert again.constraints.begin == (0, 1)
    assert again.constraints.banned == ((12,),)


def test_a_number_takes_the_place_of_digits_alone() -> None:
    aligner = Aligner([(0, 0)], shifted=False)
    rows = (0, 1, 2, 1, 1, 5, 5, 5)  # "ist" looks at the next word, "2" and "groß" at 12
    output = [DAS, GROSS, IST, 11, 13, 11, 12, 13]
    again = with_term_in_place(number_12(), output, attention(*rows), aligner, Digits())  # type: ignore[arg-type]
    assert again is not None
    assert again.constraints is not None
    assert again.constraints.begin == (0, 3)


def test_a_word_that_a_term_needs_is_not_banned() -> None:
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE, N]]])
    assert constraints.with_place(0, 1, (GEBAEUDE,)).banned == ()
    assert constraints.with_place(0, 1, (HAUS,)).with_place(0, 3, (IST,)).banned == (
        (HAUS,),
        (IST,),
    )


def test_the_term_must_begin_at_its_place_and_the_word_does_not_come() -> None:
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE], [GEBAEUDE, N]]]).with_place(0, 1, (HAUS,))
    search = SentenceSearch.begin([20, 21], SearchOptions(beam_size=1), (), constraints)
    assert isinstance(search, ConstrainedSearch)
    possible = []
    for token in (DAS, GEBAEUDE, IST):
        logits = torch.ones(1, 1, len(PIECES))
        logits[..., EOS] = 0.0  # else the search would end, and go on with the term
        log_probs = torch.log_softmax(logits, dim=-1)
        required = RequiredTokens.of([search])
        assert required is not None
        required.read(log_probs)
        required.constrain(log_probs)
        possible.append((log_probs[0, 0] > -torch.inf).nonzero()[:, 0].tolist())
        search.advance([(-1.0, 0, token, -1.0)])
    everything = [i for i in range(len(PIECES)) if i != EOS]
    assert HAUS not in possible[0]
    assert set(possible[0]) == set(everything) - {HAUS, GEBAEUDE}  # not yet
    assert possible[1] == [GEBAEUDE]
    assert HAUS not in possible[2]


def test_a_term_that_has_come_by_then_does_not_come_twice() -> None:
    constraints = Constraints(VOCABULARY, [[[GEBAEUDE, N]]]).with_place(0, 1, (HAUS,))
    for tokens in ([GEBAEUDE], [GEBAEUDE, N]):
        search = SentenceSearch.begin([20, 21], SearchOptions(beam_size=1), (), constraints)
        assert isinstance(search, ConstrainedSearch)
        constraints.begin = (0, len(tokens))
        for token in tokens:
            search.advance([(-1.0, 0, token, -1.0)])
        assert search.begins(0) == []


# The everyday model

RULES = TermRules(
    Glossary([("house", ["Gebäude"]), ("doctor", ["Mediziner"]), ("letter", ["Schreiben"])])
)
LINES = {
    "The house is big.": "Das Gebäude ist groß.",
    "My doctor is ill.": "Mein Mediziner ist krank.",
    "His letter arrived yesterday.": "Sein Schreiben ist gestern angekommen.",
    "I see the house.": "Ich sehe das Gebäude.",
    "Good morning.": "Guten Morgen.",
}


def test_the_model_does_not_say_it_twice(everyday: Translator) -> None:
    together = everyday.translate(list(LINES), terms=RULES)
    assert [result.text for result in together] == list(LINES.values())
    for line, result in zip(LINES, together, strict=True):
        assert everyday.translate([line], terms=RULES)[0].text == result.text


def test_a_number_as_written_takes_the_place_of_the_german_one(everyday: Translator) -> None:
    rules = TermRules(keep=True, decimal="as written")
    lines = {
        "It costs 1,250.50 dollars.": "Es kostet 1,250.50 Dollar.",
        "The city has 64,000 inhabitants.": "Die Stadt hat 64,000 Einwohner.",
        "In the 1980s, only 54.96 % of the families had a car.":
            "In den 1980er-Jahren hatten nur 54.96 % der Familien ein Auto.",
    }  # fmt: skip
    results = everyday.translate(list(lines), terms=rules)
    assert [result.text for result in results] == list(lines.values())


def test_two_terms_of_a_sentence_each_take_their_place(everyday: Translator) -> None:
    line = "My doctor lives in a big house."
    (result,) = everyday.translate([line], terms=RULES)
    assert result.text == "Mein Mediziner ist in einem großen Gebäude."


def test_without_terms_no_attention_is_computed(
    everyday: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine of CTranslate2 has none."""
    monkeypatch.setattr(everyday, "attend", None)
    assert everyday.translate(["Good morning."])[0].text == "Guten Morgen."


def test_terms_of_a_line_without_a_place_are_searched_once(
    everyday: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(translators, "with_term_in_place", never)
    own = [Terms(required=(("Gebäude",),))]
    assert "Gebäude" in everyday.translate(["The house is big."], terms=own)[0].text
