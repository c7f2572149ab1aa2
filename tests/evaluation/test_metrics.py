"""Scores of hand-made sentences, and the signatures that say which score it is."""

import gzip
import hashlib
import math
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import sacremoses
from conftest import SHARED

from mt.evaluation import metrics
from mt.evaluation.comet import Comet
from mt.evaluation.metrics import Score

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


compound_split_bleu = metrics._compound_split().score


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


def test_a_language_without_blanks_is_not_split_at_them() -> None:
    lines = ["我今天在房子里看到了一本书。", "他今天没有来上班。"]
    score = metrics.bleu(lines, lines, target="zh")
    assert score.value == pytest.approx(100)
    assert "|tok:zh|" in score.signature
    assert metrics.all_scores(lines, lines, "zh")[0] == score._replace(interval=0)
    scores, signatures = metrics.sentence_scores(lines, lines, target="zh")
    assert scores["bleu"] == pytest.approx([100, 100])
    assert "|tok:zh|" in signatures["bleu"]


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
        ("Vor- und Nachteile", "Vor- und Nachteile"),  # nothing after the hyphen
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
    split = compound_split_bleu(hypotheses, references)
    assert split.value == pytest.approx(100 * (3 / 7) ** 0.25)


def test_compound_split_bleu_is_not_smoothed() -> None:
    """multi-bleu.perl gives 0 when no quadruple matches; sacreBLEU's smoothing does not."""
    hypotheses, references = ["A B C D E"], ["A B C X E"]
    assert compound_split_bleu(hypotheses, references).value == 0
    assert metrics.bleu(hypotheses, references).value > 0


def test_compound_split_signature_says_what_was_done() -> None:
    signature = compound_split_bleu(HYPOTHESES, REFERENCES).signature
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
        {
            "sacreBLEU": 100,
            "chrF": 100,
            "TER": 0,
            "tokenised BLEU, compound-split": 100,
            "lc-tok BLEU": 100,
        }
    )


def test_all_scores_agree_with_the_single_ones() -> None:
    scores = [x._replace(interval=None) for x in metrics.all_scores(HYPOTHESES, REFERENCES)]
    assert metrics.bleu(HYPOTHESES, REFERENCES) in scores
    assert compound_split_bleu(HYPOTHESES, REFERENCES) in scores


def test_intervals_are_sacrebleus_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses, references = ["Der Hund schläft.", *HYPOTHESES[1:3]] * 5, REFERENCES[:3] * 5
    scores = metrics.all_scores(hypotheses, references)
    sacrebleu_metrics = (sacrebleu.BLEU(), sacrebleu.CHRF(), sacrebleu.TER())
    for score, metric in zip(scores[:3], sacrebleu_metrics, strict=True):
        expected = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
        assert score.value == expected.score
        assert f" ± {score.interval:.5f}" in expected.format(width=5)
        assert 0 < score.interval < 50
        assert "bs:" in str(metric.get_signature())
        assert "bs:" not in score.signature  # it is the value's, not the interval's
    assert metrics.bootstrap_signature() == "bs:1000|seed:12345"
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    assert metrics.bootstrap_signature() == "bs:1000|seed:7"
    reseeded = metrics.all_scores(hypotheses, references)
    assert [score.value for score in reseeded] == [score.value for score in scores]
    assert [score.interval for score in reseeded] != [score.interval for score in scores]


def test_one_sentence_has_no_interval() -> None:
    scores = metrics.all_scores(HYPOTHESES[:1], REFERENCES[:1])
    assert [score.interval for score in scores] == [None] * 5


@pytest.mark.parametrize("tokenized", [False, True])
def test_no_score_is_a_bare_bleu(tokenized: bool) -> None:
    scores = metrics.all_scores(HYPOTHESES, REFERENCES, tokenized=tokenized)
    names, signatures = ({score[i] for score in scores} for i in (0, 2))
    assert len(names) == len(signatures) == len(scores) == (4 if tokenized else 5)
    assert "bleu" not in {name.lower() for name in names}
    assert all("version:" in signature for signature in signatures)


@pytest.mark.parametrize("scorer", [metrics.all_scores, metrics.bleu, compound_split_bleu])
@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        (["a"], ["a", "b"], "1 hypotheses against 2 references"),
        (["a", "b"], ["a"], "2 hypotheses against 1 references"),
        (["a"], [], "1 hypotheses against 0 references"),
        ([], [], "nothing to score"),
    ],
)
def test_sentences_must_match_one_to_one(scorer, hypotheses, references, message) -> None:
    with pytest.raises(ValueError, match=message):
        scorer(hypotheses, references)


def test_compounds_are_split_in_german_alone():
    names = [score.name for score in metrics.all_scores(["a b"], ["a b"], "en")]
    assert names == ["sacreBLEU", "chrF", "TER", "lc-tok BLEU"]


# Lowercased, normalised, tokenised: Multi30k's form


@pytest.mark.parametrize(
    ("lang", "line", "form"),
    [
        ("de", "Das ist GUT.", "das ist gut ."),
        ("de", "Ein „Schild“ – ja!", "ein &quot; schild &quot; - ja !"),
        ("de", "Am 3. Mai, 10.000 Euro.", "am 3. mai , 10.000 euro ."),
        ("de", "Sie sagt: „Ja.“", "sie sagt : &quot; ja &quot; ."),  # Perl sees the line's end
        ("en", "A woman's “sign.”", "a woman &apos;s &quot; sign . &quot;"),
        ("en", "T-shirt & jeans", "t-shirt &amp; jeans"),
        ("de", "", ""),
        ("de", " ", ""),
    ],
)
def test_lowercased_normalised_tokenised(lang: str, line: str, form: str) -> None:
    assert metrics.LcNormTok(lang)(line) == form


@pytest.mark.parametrize("lang", ["en", "de"])
@pytest.mark.parametrize("split", ["val", "test_2016_flickr"])
def test_every_line_of_multi30k_has_the_form_of_its_own_files(lang: str, split: str) -> None:
    folder = SHARED / "data" / "multi30k"
    raw, own = (folder / f"{split}{form}.{lang}.gz" for form in ("", ".lc.norm.tok"))
    if not own.is_file():
        pytest.skip(f"{own} is not here")
    lines, expected = (
        gzip.decompress(path.read_bytes()).decode().split("\n") for path in (raw, own)
    )
    form = metrics.LcNormTok(lang)
    assert len(lines) > 900
    assert [form(line) for line in lines] == expected


def test_lc_tok_bleu_is_that_of_the_form() -> None:
    hypotheses, references = ["EINE Frau – „Eva“ – lacht laut."], ["eine frau - Eva - lacht laut."]
    score = by_name(hypotheses, references)["lc-tok BLEU"]
    tokens = [metrics.LcNormTok("de")(line) for line in (*hypotheses, *references)]
    assert tokens[0] == "eine frau - &quot; eva &quot; - lacht laut ."
    metric = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    assert score.value == metric.corpus_score(tokens[:1], [tokens[1:]]).score > 5
    assert score.value > metrics.bleu(hypotheses, references).value
    parts = score.signature.split("|")
    assert {"case:lc", "tok:none", "smooth:none", "pre:lc+norm+moses-de"} <= set(parts)
    assert f"sacremoses:{sacremoses.__version__}" in parts


# Text that is tokenised already


def test_tokenised_text_is_scored_as_it_is() -> None:
    """The last of five tokens is wrong; 13a would split them into more."""
    hypotheses, references = ["a b c d,e x"], ["a b c d,e y"]
    scores = {s.name: s for s in metrics.all_scores(hypotheses, references, tokenized=True)}
    assert list(scores) == [
        "tokenised BLEU, as given",
        "chrF",
        "TER",
        "sacreBLEU, detokenised",
    ]
    as_given = scores["tokenised BLEU, as given"]
    assert as_given.value == pytest.approx(LAST_OF_FIVE_WRONG)
    assert "tok:none" in as_given.signature
    assert metrics.bleu(hypotheses, references).value > as_given.value + 1


def test_tokens_are_put_together_again_for_sacrebleu() -> None:
    plain = (["Er sagt: „Guten Tag.“ Ja!"], ["Er sagte: „Guten Tag.“ Ja!"])
    form = metrics.LcNormTok("de")
    tokens = [[form(line) for line in side] for side in plain]
    assert metrics.Detokenized("de")(tokens[0][0]) == 'er sagt: "guten tag". ja!'
    score = metrics.all_scores(*tokens, tokenized=True)[-1]
    back = [[metrics.Detokenized("de")(line) for line in side] for side in tokens]
    assert score.value == sacrebleu.corpus_bleu(back[0], [back[1]]).score
    assert "|tok:13a|" in score.signature
    assert "|pre:detok-moses-de|" in score.signature


@pytest.mark.parametrize(
    ("lines", "tokenised"),
    [
        (["a b .", "c d .", "e"], True),
        (["A b.", "C d.", "e f ."], False),
        (["a b", ""], None),
        ([], None),
    ],
)
def test_what_looks_tokenised(lines: list[str], tokenised: bool | None) -> None:
    assert metrics.looks_tokenized(lines) is tokenised


def test_sacrebleu_warns_of_tokenised_text_unless_forced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = ["a b c ."] * 100
    assert metrics.bleu(lines, lines, force=True) == metrics.bleu(["a b c ."], ["a b c ."])
    assert not caplog.records
    metrics.bleu(lines, lines)
    assert "tokenized period" in caplog.text


# Sentence by sentence


@pytest.mark.parametrize("tokenized", [False, True])
def test_sentence_scores_are_sacrebleus(tokenized: bool) -> None:
    scores, signatures = metrics.sentence_scores(HYPOTHESES, REFERENCES, tokenized=tokenized)
    metric = sacrebleu.BLEU(effective_order=True, tokenize="none" if tokenized else "13a")
    for i, (hypothesis, reference) in enumerate(zip(HYPOTHESES, REFERENCES, strict=True)):
        assert scores["bleu"][i] == metric.sentence_score(hypothesis, [reference]).score
        assert scores["chrf"][i] == sacrebleu.sentence_chrf(hypothesis, [reference]).score
        assert scores["ter"][i] == sacrebleu.sentence_ter(hypothesis, [reference]).score
    assert "|eff:yes|" in signatures["bleu"]
    assert f"|tok:{'none' if tokenized else '13a'}|" in signatures["bleu"]


def test_tokens_are_counted_as_bleu_counts_them() -> None:
    assert metrics.token_counts(["Ja, gut."], ["Ja, sehr gut."], tokenized=False) == (4, 5)
    assert metrics.token_counts(["Ja, gut."], ["Ja, sehr gut."], tokenized=True) == (2, 3)


@pytest.mark.parametrize("tokenized", [False, True])
def test_blank_lines_are_scored(tokenized: bool) -> None:
    for hypotheses, references in ((["", "a b"], ["a b", ""]), ([""], [""])):
        for score in metrics.all_scores(hypotheses, references, tokenized=tokenized):
            assert math.isfinite(score.value), score
        metrics.sentence_scores(hypotheses, references, tokenized=tokenized)
    assert metrics.token_counts([""], [""], tokenized=tokenized) == (0, 0)


# COMET, by a stand-in for its package


class StandIn(types.ModuleType):
    """What mt.evaluation.comet uses of unbabel-comet 2."""

    __name__ = "comet"

    def __init__(self, path: Path) -> None:
        super().__init__("comet")
        self.path, self.asked = path, []

    def download_model(self, name: str) -> str:
        if name != "known/model":
            raise KeyError(f"Model '{name}' not supported by COMET.")
        return str(self.path)

    def load_from_checkpoint(self, path: str) -> "StandIn":
        if Path(path).read_bytes() != b"weights":
            raise Exception("Invalid checkpoint")
        return self

    def predict(
        self, samples: list[dict[str, str]], batch_size: int, gpus: int, progress_bar: bool
    ) -> Any:
        self.asked.append((samples, gpus))
        scores = [len(sample["mt"]) / 100 for sample in samples]
        return types.SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


@pytest.fixture
def comet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    path = tmp_path / "model.ckpt"
    path.write_bytes(b"weights")
    stand_in = StandIn(path)
    monkeypatch.setitem(sys.modules, "comet", stand_in)
    return stand_in


def test_comet_scores_sentences_and_the_whole(comet: StandIn) -> None:
    by_path, by_name = Comet(str(comet.path)), Comet("known/model", gpu=True)
    score, sentences = by_path(["a", "b"], ["xx", "xxxx"], ["y", "z"])
    assert (score.name, score.value, sentences) == ("COMET", pytest.approx(0.03), [0.02, 0.04])
    sha256 = hashlib.sha256(b"weights").hexdigest()[:12]
    assert score.signature.endswith(f"|model:model.ckpt|sha256:{sha256}")
    # 0.02, 0.03 and 0.04: a quarter, a half and a quarter of the samples
    assert score.interval == pytest.approx(0.01)
    alone, _ = by_name(["a"], ["x"], ["y"])
    assert alone.signature.split("|")[1] == "model:known/model"
    assert alone.interval is None
    assert comet.asked[0] == (
        [{"src": "a", "mt": "xx", "ref": "y"}, {"src": "b", "mt": "xxxx", "ref": "z"}],
        0,
    )
    assert comet.asked[1][1] == 1


@pytest.mark.parametrize("model", ["unknown/model", "damaged.ckpt"])
def test_comet_without_its_model(
    comet: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("damaged.ckpt").write_bytes(b"other")
    with pytest.raises(ValueError, match=f"comet={model}: no such COMET model can be loaded: "):
        Comet(model)


def test_comet_that_fails_in_its_libraries(comet: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of\nmemory")

    monkeypatch.setattr(comet, "predict", predict, raising=False)
    with pytest.raises(ValueError, match="COMET has failed: CUDA out of memory"):
        Comet(str(comet.path))(["a"], ["b"], ["c"])


def test_comet_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "comet", None)
    with pytest.raises(ValueError, match=r"COMET is not installed: pip install .*unbabel-comet"):
        Comet("x")
