"""What a translator can do: prefixes, samples, lengths, ensembles, scores, attention."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch
from conftest import PAIRS, babbler
from torch import Tensor

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.data.special_ids import BOS, EOS
from mt.data.tokenizer import Tokenizer
from mt.inference.incremental import InferenceModel
from mt.inference.inputs import Input
from mt.inference.options import SearchOptions
from mt.inference.outputs import Output, output_text
from mt.inference.sentence_search import Hypothesis
from mt.inference.translation import Translation
from mt.inference.translator import Translator
from mt.model import checkpoint

EVERYDAY = Tokenizer.load(checkpoint.BUNDLED_MODEL / "tokenizer.model")
LINES = [pair[0] for pair in phrasebook.phrases()][:40:2]


def outputs(results: list[Translation]) -> list[tuple[str, ...]]:
    return [part.output for result in results for part in result.parts]


def assert_same(some: list[Translation], others: list[Translation]) -> None:
    assert [result.text for result in some] == [result.text for result in others]
    assert outputs(some) == outputs(others)
    for one, other in zip(some, others, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


# Prefixes


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_prefix_begins_every_translation(babbling: Translator, beam_size: int) -> None:
    results = babbling.translate(
        LINES, beam_size=beam_size, n_best=beam_size, prefixes=["Ich habe"] * len(LINES)
    )
    [ids] = babbling.tokenizer.encode(["Ich habe"])
    for result in results:
        assert all(text.startswith("Ich habe") for text, _ in result.n_best)
        assert list(result.parts[0].output[: len(ids)]) == babbling.tokenizer.pieces(ids)
        assert result.tokens > len(ids)
    assert len({result.text for result in results}) > 10


def test_each_line_has_its_own_prefix(babbling: Translator) -> None:
    prefixes = ["", "Wo", "Das ist gut", "", "Ich möchte bitte ein Zimmer"]
    results = babbling.translate(LINES[:5], prefixes=prefixes)
    alone = [
        babbling.translate([line], prefixes=[prefix] if prefix else None)[0]
        for line, prefix in zip(LINES[:5], prefixes, strict=True)
    ]
    assert_same(results, alone)
    assert all(r.text.startswith(p) for r, p in zip(results, prefixes, strict=True))


def test_a_prefix_that_the_model_would_choose_changes_nothing(babbling: Translator) -> None:
    free = babbling.translate(LINES, beam_size=1)
    prefixes = [" ".join(result.text.split()[:2]) for result in free]
    same = [
        i
        for i, ids in enumerate(babbling.tokenizer.encode(prefixes))
        if tuple(babbling.tokenizer.pieces(ids)) == free[i].parts[0].output[: len(ids)]
    ]
    assert len(same) > len(LINES) / 2
    forced = babbling.translate(LINES, beam_size=1, prefixes=prefixes)
    assert_same([forced[i] for i in same], [free[i] for i in same])


def test_a_prefix_is_kept_even_beyond_the_greatest_length(babbling: Translator) -> None:
    [result] = babbling.translate(["A door"], prefixes=["Ich habe ein Haus"], max_length=2)
    assert result.text == "Ich habe ein Haus"


def test_a_blank_line_has_no_translation_for_a_prefix_to_begin(babbling: Translator) -> None:
    results = babbling.translate(["", "bear", " "], prefixes=["Ich", "Das", "Ich"])
    assert [result.text[:3] for result in results] == ["", "Das", ""]


@pytest.mark.parametrize("prefixes", [[], ["a"], ["a"] * 3])
def test_there_must_be_a_prefix_for_each_line(babbling: Translator, prefixes: list) -> None:
    with pytest.raises(ValueError, match=f"{len(prefixes)} prefixes for 2 sentences"):
        babbling.translate(["bear", "A door"], prefixes=prefixes)


# Samples


SAMPLES = SearchOptions(samples=4, n_best=4, seed=1, max_length=20)


def test_a_seed_gives_the_same_samples_in_any_company(babbling: Translator) -> None:
    together = babbling.translate(LINES, SAMPLES)
    assert babbling.translate(LINES, SAMPLES) == together
    alone = [babbling.translate([line], SAMPLES)[0] for line in LINES]
    backwards = babbling.translate(LINES[::-1], SAMPLES, batch_size=3)[::-1]
    for results in (alone, backwards):
        assert_same(results, together)
        assert [[text for text, _ in r.n_best] for r in results] == [
            [text for text, _ in r.n_best] for r in together
        ]


def test_another_seed_gives_other_samples(babbling: Translator) -> None:
    one, two = (babbling.translate(LINES, SAMPLES, seed=seed) for seed in (1, 2))
    assert sum(a.n_best == b.n_best for a, b in zip(one, two, strict=True)) < len(LINES) / 4


def test_samples_come_best_first_and_differ(babbling: Translator) -> None:
    results = babbling.translate(LINES, SAMPLES)
    for result in results:
        scores = [score for _, score in result.n_best]
        assert len(scores) == 4
        assert scores == sorted(scores, reverse=True)
    assert sum(len({text for text, _ in r.n_best}) > 1 for r in results) > len(LINES) / 2


def test_a_low_temperature_draws_what_is_likely(babbling: Translator) -> None:
    def mean(temperature: float) -> float:
        samples = babbling.translate(LINES, SAMPLES, temperature=temperature, alpha=0.0)
        return sum(score for result in samples for _, score in result.n_best)

    assert mean(0.1) > mean(0.5) > mean(1.0) > mean(5.0)


@pytest.mark.parametrize("setting", [{"top_k": 1}, {"top_p": 1e-6}])
def test_samples_with_no_choice_are_the_greedy_output(babbling: Translator, setting: dict) -> None:
    samples = babbling.translate(LINES, samples=2, max_length=20, **setting)
    assert_same(samples, babbling.translate(LINES, beam_size=1, max_length=20))


# Lengths and repetition


@pytest.mark.parametrize("beam_size", [1, 3])
def test_least_and_most_tokens(babbling: Translator, beam_size: int) -> None:
    options = SearchOptions(beam_size=beam_size, min_length=16, max_length=20)
    lengths = {result.tokens - 1 for result in babbling.translate(LINES, options)}
    assert min(lengths) >= 16
    assert max(lengths) <= 20
    free = {r.tokens - 1 for r in babbling.translate(LINES, beam_size=beam_size)}
    assert min(free) < 16, "the bounds were to bind"
    assert max(free) > 20
    fixed = babbling.translate(LINES, beam_size=beam_size, min_length=7, max_length=7)
    assert {result.tokens - 1 for result in fixed} == {7}


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("beam_size", [1, 4])
def test_no_ngram_comes_twice(babbling: Translator, n: int, beam_size: int) -> None:
    def repeat(results: list[Translation]) -> list[bool]:
        grams = [
            [output[i : i + n] for i in range(len(output) - n + 1)] for output in outputs(results)
        ]
        return [len(set(ngrams)) < len(ngrams) for ngrams in grams]

    assert not any(repeat(babbling.translate(LINES, beam_size=beam_size, no_repeat_ngram=n)))
    assert any(repeat(babbling.translate(LINES, beam_size=beam_size)))


def test_a_penalty_makes_repetition_rarer(babbling: Translator) -> None:
    def variety(**settings: float) -> float:
        pieces = outputs(babbling.translate(LINES, beam_size=1, min_length=20, **settings))
        return sum(len(set(output)) / len(output) for output in pieces)

    assert variety(repetition_penalty=3.0) > 1.5 * variety()


# Ensembles


def test_equal_models_are_like_one(babbling: Translator, bpe: Tokenizer) -> None:
    twice = Translator([babbler(bpe.vocab_size), babbler(bpe.vocab_size)], bpe, 80)
    for options in (SearchOptions(beam_size=1), SearchOptions(n_best=3), SAMPLES):
        assert_same(twice.translate(LINES, options), babbling.translate(LINES, options))


def test_an_ensemble_has_the_mean_probability(bpe: Tokenizer) -> None:
    models = [babbler(bpe.vocab_size, seed) for seed in (0, 2)]
    one, two, both = (Translator(chosen, bpe, 80) for chosen in (models[0], models[1], models))
    sources, targets = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
    scored = [t.score(sources, targets, alpha=0) for t in (one, two, both)]
    for a, b, mean in zip(*scored, strict=True):
        log_probs = [torch.tensor(r.parts[0].log_probs).double() for r in (a, b)]
        expected = (log_probs[0].exp() + log_probs[1].exp()).log() - math.log(2)
        assert mean.parts[0].log_probs == pytest.approx(expected.tolist(), abs=1e-4)
    texts = [[result.text for result in t.translate(LINES)] for t in (one, two, both)]
    assert texts[2] not in texts[:2]


def test_folders_of_one_vocabulary_make_an_ensemble(bpe: Tokenizer, tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for seed, path in enumerate(paths):
        longest = 80 - seed
        checkpoint.save(path, babbler(bpe.vocab_size, seed), bpe, longest, ["en", "de"], {})
    loaded = Translator.load(paths, "cpu")
    assert loaded.name == f"{paths[0]} + {paths[1]}"
    assert loaded.max_length == 79, "the least of them"
    by_hand = Translator([babbler(bpe.vocab_size, seed) for seed in (0, 1)], bpe, 79)
    assert_same(loaded.translate(LINES), by_hand.translate(LINES))


def test_an_ensemble_of_two_vocabularies_is_refused(
    bpe: Tokenizer, model_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "other"
    other = tokenizers.train([pair[1] for pair in PAIRS], 100)
    checkpoint.save(path, babbler(100), other, 40, ["en", "de"], {})
    with pytest.raises(ValueError, match=r"other: not the tokenizer of .*model: an ensemble needs"):
        Translator.load([model_folder, path], "cpu")


def test_an_ensemble_of_two_directions_is_refused(bpe: Tokenizer, tmp_path: Path) -> None:
    for name, languages in (("a", ["en", "de"]), ("b", ["de", "en"])):
        model = babbler(bpe.vocab_size)
        checkpoint.save(tmp_path / name, model, bpe, 40, languages, {})
    with pytest.raises(ValueError, match=r"b: not the languages of .*a$"):
        Translator.load([tmp_path / "a", tmp_path / "b"], "cpu")


# Scores


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_a_translation_is_scored_as_the_search_did(babbling: Translator, alpha: float) -> None:
    results = babbling.translate([pair[0] for pair in phrasebook.phrases()][:200:2], alpha=alpha)
    encoded = babbling.tokenizer.encode([result.text for result in results])
    same_pieces = [  # encoding the text gives the pieces again
        result
        for result, ids in zip(results, encoded, strict=True)
        if tuple(babbling.tokenizer.pieces(ids)) == result.parts[0].output
    ]
    assert len(same_pieces) > 10
    scored = babbling.score([r.source for r in same_pieces], [r.text for r in same_pieces], alpha)
    assert_same(scored, same_pieces)
    for one, other in zip(scored, same_pieces, strict=True):
        assert one.parts[0].log_probs == pytest.approx(other.parts[0].log_probs, abs=1e-4)
        penalty = ((5 + one.tokens) / 6) ** alpha
        assert sum(one.parts[0].log_probs) / penalty == pytest.approx(one.score, abs=1e-4)
        assert len(one.parts[0].log_probs) == one.tokens == len(one.parts[0].output) + 1


def test_pairs_are_scored_alike_in_any_company(babbling: Translator) -> None:
    sources, targets = [pair[0] for pair in PAIRS], [pair[1] for pair in PAIRS]
    together = babbling.score([*sources, "", "bear", ""], [*targets, "Bär", "", ""])
    for i in (0, 7, len(PAIRS), len(PAIRS) + 1, len(PAIRS) + 2):
        source, target = together[i].source, together[i].text
        assert_same(babbling.score([source], [target]), [together[i]])
    assert all(result.score < 0 for result in together)
    assert [result.text for result in together[-3:]] == ["Bär", "", ""]


def test_scoring_wants_pairs(babbling: Translator) -> None:
    assert babbling.score([], []) == []
    with pytest.raises(ValueError, match="2 sources and 1 targets: not pairs"):
        babbling.score(["a", "b"], ["a"])


def test_a_pair_beyond_the_length_of_training_is_scored_with_a_warning(
    babbling: Translator, caplog: pytest.LogCaptureFixture
) -> None:
    [result] = babbling.score(["a " * 100], ["b"])
    assert math.isfinite(result.score)
    assert "a line of 100 tokens is scored, longer than the 80" in caplog.text


def test_log_p_is_the_sum_over_the_parts_of_a_line(babbling: Translator) -> None:
    lines = [*LINES[:3], " ".join(LINES[3:6]), ""]
    results = babbling.translate(lines, split=True, alpha=0.0)
    assert [len(result.parts) for result in results] == [1, 1, 1, 3, 0]
    for result in results:  # without a length penalty a score is the mean of log P
        assert result.log_prob == pytest.approx(result.score * len(result.parts), abs=1e-4)
    assert results[-1].log_prob == 0


# Minimum Bayes risk


@pytest.mark.parametrize("settings", [{"beam_size": 4}, {"samples": 6, "seed": 3}])
def test_the_choice_of_least_risk_is_that_of_brute_force(
    babbling: Translator, settings: dict
) -> None:
    common = {**settings, "alpha": 0.0, "max_length": 20}
    width = settings.get("samples", 4)
    candidates = babbling.translate(LINES, n_best=width, **common)
    chosen = babbling.translate(LINES, n_best=width, mbr=True, **common)
    moved = 0
    for plain, result in zip(candidates, chosen, strict=True):
        weights = [1.0 if "samples" in settings else math.exp(s) for _, s in plain.n_best]
        risk = {
            text: sum(
                weight * sacrebleu.sentence_chrf(text, [reference]).score
                for weight, (reference, _) in zip(weights, plain.n_best, strict=True)
            )
            / sum(weights)
            for text, _ in plain.n_best
        }
        utilities = [risk[text] for text, _ in result.n_best]
        assert utilities == pytest.approx(sorted(utilities, reverse=True))
        assert sorted(result.n_best) == sorted(plain.n_best)
        assert result.text == result.n_best[0][0]
        moved += result.text != plain.text
    assert moved > 2, "the likeliest was always the best"


def test_the_choice_of_least_risk_comes_with_its_score(babbling: Translator) -> None:
    plain = babbling.translate(LINES, n_best=4)
    for candidates, result in zip(plain, babbling.translate(LINES, mbr=True), strict=True):
        assert len(result.n_best) == 1
        assert result.score == pytest.approx(dict(candidates.n_best)[result.text], abs=1e-4)


# Attention


def by_hand(translator: Translator, source: list[int], output: list[int]) -> np.ndarray:
    """Softmax(Q K^T / sqrt(d_k)) (3.2.1) of every layer, from what mt.model multiplies."""
    model = babbler(translator.tokenizer.vocab_size)
    weights: list[Tensor] = []

    def heads(x: Tensor, positions: int) -> Tensor:  # without the padding at their end
        rows = x.flatten(0, -2)[:positions]
        return rows.unflatten(1, (model.config["h"], -1)).transpose(0, 1)

    def watch(module: torch.nn.Module, inputs: tuple, _: object) -> None:
        x, memory = inputs[:2]
        Q = heads(module.W_Q(x), len(output) + 1)
        K = heads(module.W_KV(memory).chunk(2, dim=-1)[0], len(source) + 1)
        weights.append((Q @ K.transpose(1, 2) / math.sqrt(Q.shape[2])).softmax(dim=2))

    for layer in model.decoder:
        layer.cross_attention.register_forward_hook(watch)
    with torch.no_grad():
        model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *output]]))
    return torch.stack(weights).numpy()


def test_attention_is_that_of_the_model(babbling: Translator) -> None:
    results = babbling.translate([*LINES, "", "A door"], attention=True, max_length=15)
    ids = {piece: i for i, piece in enumerate(babbling.tokenizer.pieces(list(range(300))))}
    for result in results:
        for part in result.parts:
            weights = part.attention
            assert weights.shape == (1, 2, len(part.output) + 1, len(part.source) + 1)
            torch.testing.assert_close(weights.sum(dim=3), torch.ones(weights.shape[:3]))
            source, output = ([ids[p] for p in pieces] for pieces in (part.source, part.output))
            np.testing.assert_allclose(weights, by_hand(babbling, source, output), atol=1e-5)
    assert results[-2].parts == ()


def test_attention_comes_only_on_request_and_changes_nothing(babbling: Translator) -> None:
    plain = babbling.translate(LINES)
    assert all(part.attention is None for result in plain for part in result.parts)
    assert_same(babbling.translate(LINES, attention=True), plain)


@pytest.mark.parametrize(("models", "workers"), [(1, 1), (1, 3), (2, 1)])
def test_attention_is_the_same_alone_and_in_batches(
    bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch, models: int, workers: int
) -> None:
    sizes: list[int] = []

    def watched(self: InferenceModel, src: Tensor, *arguments: Any) -> list[Tensor]:
        sizes.append(len(src))
        return attention(self, src, *arguments)

    attention = InferenceModel.cross_attention_weights
    monkeypatch.setattr(InferenceModel, "cross_attention_weights", watched)
    babblers = [babbler(bpe.vocab_size, seed) for seed in range(models)]
    translator = Translator(babblers, bpe, 80, workers=workers)
    assert translator.aligner.heads  # which looks at the attention of sentences of its own
    sizes.clear()
    lines = [*LINES, "", " ".join(LINES), "A door"]  # one of them in several parts
    options = SearchOptions(beam_size=2, attention=True, max_length=15)
    together, alone = (translator.translate(lines, options, batch_size=n) for n in (9, 1))
    assert_same(together, alone)
    batched = sizes[: -sum(len(result.parts) for result in alone)]
    assert len(together[-2].parts) > 1
    assert 1 < max(batched) <= 9
    for one, other in zip(together, alone, strict=True):
        for part, same in zip(one.parts, other.parts, strict=True):
            torch.testing.assert_close(part.attention, same.attention, atol=1e-5, rtol=0)


def test_parts_tell_the_pieces(babbling: Translator) -> None:
    [result] = babbling.translate(["A door"])
    [part] = result.parts
    assert part.source == tuple(babbling.tokenizer.pieces(babbling.tokenizer.encode(["A door"])[0]))
    assert "".join(part.output).replace("▁", " ").split() == result.text.split()
    assert sum(part.log_probs) / ((5 + result.tokens) / 6) ** 0.6 == pytest.approx(result.score)


def test_a_sentence_in_capitals_is_translated_in_lower_case_and_put_in_capitals_again(
    babbling: Translator,
) -> None:
    line = "Where do you live? My friend is here."
    settings: dict[str, Any] = {"beam_size": 2, "n_best": 2}
    [plain] = babbling.translate(["Where do you live? My friend is here."], split=True, **settings)
    [all_caps] = babbling.translate([line.upper()], split=True, **settings)
    assert all_caps.source == line.upper()
    assert all_caps.text == plain.text.upper() != plain.text
    assert all_caps.n_best == tuple((text.upper(), score) for text, score in plain.n_best)
    assert all_caps.parts == tuple(replace(p, text=p.text.upper()) for p in plain.parts)
    [mixed] = babbling.translate(["Where do you live? MY FRIEND IS HERE."], split=True)
    alone = [
        result.text for result in babbling.translate(["Where do you live?", "My friend is here."])
    ]
    assert mixed.text == f"{alone[0]} {alone[1].upper()}"
    whole = babbling.translate([line.upper()], **settings)
    assert whole[0].parts != all_caps.parts  # a corpus is translated as it is


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("Yes… no.", "ja… nein"),
        ("Yes... no.", "ja... nein"),
        ("Yes.", "ja... nein"),
        ("Yes… and... no.", "ja... nein"),
        ("Yes!!!", "ja... nein!!!"),
        ('"Yes?!" ', "ja... nein?!"),
        ("Yes!! No", "ja... nein"),
        ("Yes!!!" * 1000 + " No", "ja... nein"),
        ('I said "Yes?!"', "ja... nein"),
    ],
)
def test_ellipses_and_marks_are_written_as_the_source_has_them(
    bpe: Tokenizer, source: str, written: str
) -> None:
    assert output_of(bpe, source, "ja... nein") == written


@pytest.mark.parametrize(
    ("prefix", "written"), [("ja", "ja nein"), ("JA", "JA NEIN"), ("", "JA NEIN")]
)
def test_a_translation_in_capitals_begins_with_its_prefix(
    bpe: Tokenizer, prefix: str, written: str
) -> None:
    [ids, prefix_ids] = bpe.encode_target(["ja nein", prefix])
    output = Output(Input([5], True, prefix_ids, "YES NO"), [Hypothesis(ids, 0.0, 0.0)], None)
    assert output_text(output, ids, bpe) == written


def output_of(bpe: Tokenizer, source: str, translation: str) -> str:
    [ids] = bpe.encode_target([translation])
    output = Output(Input([5], False, [], source), [Hypothesis(ids, 0.0, 0.0)], None)
    return output_text(output, ids, bpe)


@pytest.mark.parametrize(
    ("source", "translation", "written"),
    [
        ("Great 🎉!", "Toll 🎉", "Toll 🎉!"),
        ("Great 👋🏽. ", "Toll 👋🏽", "Toll 👋🏽."),
        ("Great 🎉.", "Toll 🎉.", "Toll 🎉."),
        ("Great 🎉.", "Toll", "Toll"),
        ("Great 🎉", "Toll 🎉", "Toll 🎉"),
        ("Great (really).", "Toll (wirklich)", "Toll (wirklich)"),
    ],
)
def test_a_mark_after_an_emoji_stays(source: str, translation: str, written: str) -> None:
    assert output_of(EVERYDAY, source, translation) == written


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("Er: „Sie sagte „Nein“.“", "Er: „Sie sagte ‚Nein‘.“"),
        ("„Ja“ und „nein“.", "„Ja“ und „nein“."),
        ("„Er sagte „ja“ und „nein“.“ „Gut“", "„Er sagte ‚ja‘ und ‚nein‘.“ „Gut“"),
        ("„Er sagte „ja.", "„Er sagte „ja."),
        ("“Er“ „sagte „ja“", "“Er“ „sagte „ja“"),
    ],
)
def test_quotes_within_quotes_have_other_signs(translation: str, written: str) -> None:
    assert output_of(EVERYDAY, "He said so.", translation) == written
