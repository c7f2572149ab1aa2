"""Scores of hand-made sentences, and the signatures that say which score it is."""

import math

import pytest
import sacrebleu
import sacremoses

from mt import metrics
from mt.metrics import Score

# Three of five words right up to a wrong last one: 4/5 of the words, 3/4 of the pairs, 2/3 of the
# triples and 1/2 of the quadruples, whose geometric mean is 0.2 ** (1/4).
LAST_OF_FIVE_WRONG = 100 * 0.2**0.25

HYPOTHESES = [
    "Das Haus ist groß .",
    "Er fährt mit dem E-Mail-Auto nach Baden-Württemberg.",
    "Ein „schöner“ Tag – nicht wahr?",
    "",
]
REFERENCES = [
    "Das Haus ist klein.",
    "Er fuhr mit dem E-Mail-Wagen nach Baden-Württemberg.",
    "Ein schöner Tag, nicht wahr?",
    "Die vierte Zeile fehlt.",
]


def by_name(hypotheses: list[str], references: list[str]) -> dict[str, Score]:
    return {score.name: score for score in metrics.all_scores(hypotheses, references)}


# sacreBLEU


@pytest.mark.parametrize(
    ("hypotheses", "references", "value"),
    [
        pytest.param(["A B C D E"], ["A B C D E"], 100, id="perfect"),
        pytest.param(["A B C D E"], ["A B C D F"], LAST_OF_FIVE_WRONG, id="last word wrong"),
        pytest.param(["A B C D e"], ["A B C D E"], LAST_OF_FIVE_WRONG, id="case counts"),
        pytest.param(["A B C D."], ["A B C D!"], LAST_OF_FIVE_WRONG, id="13a cuts off a full stop"),
        pytest.param(["A B C D"], ["A B C D E"], 100 * math.exp(1 - 5 / 4), id="too short"),
        pytest.param(
            ["A B C D", "E F G H"],
            ["A B C D", "I J K L"],
            50,
            id="counts of all sentences together, no mean of sentences",
        ),
        pytest.param([""], ["A B C D"], 0, id="empty hypothesis"),
    ],
)
def test_bleu_by_hand(hypotheses: list[str], references: list[str], value: float) -> None:
    assert metrics.bleu(hypotheses, references).value == pytest.approx(value)


def test_bleu_is_sacrebleus() -> None:
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 5 < expected < 95
    assert metrics.bleu(HYPOTHESES, REFERENCES).value == expected


def test_bleu_signature_is_the_default_one() -> None:
    score = metrics.bleu(HYPOTHESES, REFERENCES)
    assert score.signature == (
        f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}"
    )


# chrF and TER


def test_ter_by_hand() -> None:
    """One word of four to replace is 25 edits for a hundred words; TER does not see case."""
    assert by_name(["A B c D"], ["a B X D"])["TER"].value == pytest.approx(25)


def test_chrf_and_ter_are_sacrebleus() -> None:
    scores = by_name(HYPOTHESES, REFERENCES)
    assert scores["chrF"].value == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score
    assert scores["TER"].value == sacrebleu.corpus_ter(HYPOTHESES, [REFERENCES]).score
    assert "nc:6|nw:0" in scores["chrF"].signature  # chrF, not chrF++
    assert "tok:tercom" in scores["TER"].signature


# Compound splitting


@pytest.mark.parametrize(
    ("line", "split"),
    [
        ("Baden-Württemberg", "Baden ##AT##-##AT## Württemberg"),
        ("E-Mail-Wagen", "E ##AT##-##AT## Mail ##AT##-##AT## Wagen"),
        ("Das ist gut.", "Das ist gut ."),
        ("Ein Tag - und mehr", "Ein Tag - und mehr"),  # a dash, no compound
        ("Vor- und Nachteile", "Vor- und Nachteile"),  # nothing behind the hyphen
        ("„Gut“, sagte er.", '„ Gut " , sagte er .'),
        ("Ein Tag – nicht wahr…", "Ein Tag – nicht wahr ..."),
        ("Am 3. Mai, 10.000 Euro.", "Am 3. Mai , 10.000 Euro ."),  # Moses for German
        ("A & B < C", "A & B < C"),  # not escaped
        # As in the Perl of get_ende_bleu.sh, a letter takes part in one match only.
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_in_the_papers_evaluation(line: str, split: str) -> None:
    assert metrics._CompoundSplitter()(line) == split


def test_splitting_lifts_a_half_right_compound() -> None:
    """Unsplit, one word of five is wrong; split, one of seven: (6/7 5/6 4/5 3/4) ** (1/4)."""
    hypotheses, references = (
        ["wir fahren bald nach Baden-Wagen"],
        ["wir fahren bald nach Baden-Bad"],
    )
    assert metrics.bleu(hypotheses, references).value == pytest.approx(LAST_OF_FIVE_WRONG)
    split = metrics.compound_split_bleu(hypotheses, references)
    assert split.value == pytest.approx(100 * (3 / 7) ** 0.25)


def test_compound_split_bleu_is_not_smoothed() -> None:
    """multi-bleu.perl gives 0 when no quadruple matches; sacreBLEU's smoothing does not."""
    hypotheses, references = ["A B C D E"], ["A B C X E"]
    assert metrics.compound_split_bleu(hypotheses, references).value == 0
    assert metrics.bleu(hypotheses, references).value > 0


def test_compound_split_signature_says_what_was_done() -> None:
    signature = metrics.compound_split_bleu(HYPOTHESES, REFERENCES).signature
    parts = signature.split("|")
    for part in (
        "case:mixed",
        "tok:none",
        "smooth:none",
        "pre:moses-de+at",
        f"version:{sacrebleu.__version__}",
        f"sacremoses:{sacremoses.__version__}",
    ):
        assert part in parts


# All together


def test_perfect_translations() -> None:
    values = {name: score.value for name, score in by_name(REFERENCES, REFERENCES).items()}
    assert values == pytest.approx(
        {"sacreBLEU": 100, "chrF": 100, "TER": 0, "tokenised BLEU, compound-split": 100}
    )


def test_all_scores_agree_with_the_single_ones() -> None:
    scores = metrics.all_scores(HYPOTHESES, REFERENCES)
    assert metrics.bleu(HYPOTHESES, REFERENCES) in scores
    assert metrics.compound_split_bleu(HYPOTHESES, REFERENCES) in scores


def test_no_score_is_a_bare_bleu() -> None:
    scores = metrics.all_scores(HYPOTHESES, REFERENCES)
    assert len({score.name for score in scores}) == len({score.signature for score in scores}) == 4
    assert "bleu" not in {score.name.lower() for score in scores}
    assert all("version:" in score.signature for score in scores)


@pytest.mark.parametrize("measure", [metrics.all_scores, metrics.bleu, metrics.compound_split_bleu])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a"], ["a", "b"], "1 hypotheses against 2 references"),
        (["a", "b"], ["a"], "2 hypotheses against 1 references"),
        (["a"], [], "1 hypotheses against 0 references"),
        ([], [], "nothing to score"),
    ],
)
def test_sentences_must_match_one_to_one(measure, hypotheses, references, message) -> None:
    with pytest.raises(ValueError, match=message):
        measure(hypotheses, references)


def test_compounds_are_split_in_german_alone():
    names = [score.name for score in metrics.all_scores(["a b"], ["a b"], german=False)]
    assert names == ["sacreBLEU", "chrF", "TER"]
