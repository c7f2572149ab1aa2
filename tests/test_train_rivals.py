"""Training a decoder-only model: on pairs, with the loss on both sides, and on plain text."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Done
from train_helpers import PAIRS, arguments, assert_same_weights, metrics, run

from mt.data.batch_sampler import collate
from mt.data.tokenizer import Tokenizer
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.training.lightning_module import TranslationModule
from mt.training.run_dir import is_finished

SHAPE = {"N": 2, "d_model": 16, "d_ff": 32, "h": 2, "P_drop": 0.0, "architecture": "decoder_only"}
LEARNING = {
    "model.d_model": 64,
    "model.d_ff": 128,
    "model.P_drop": 0,
    "training.eps_ls": 0,
    "training.warmup_steps": 60,
    "average": 3,
    "checkpoint_every": 20,
}


def train(corpus: Path, run_dir: Path, steps: int) -> None:
    changes = LEARNING | {
        "model": "decoder_only_tiny",
        "model.N": 2,
        "trainer.max_steps": steps,
        "validate_every": steps,
        "training.loss_on_source": "true",
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert run(arguments(corpus, run_dir, **changes), monkeypatch) == 0


@pytest.fixture(scope="module")
def trained(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("rival") / "run"
    train(corpus, run_dir, 60)
    return run_dir


@pytest.mark.slow
def test_a_decoder_alone_learns_end_to_end(corpus: Path, tmp_path: Path) -> None:
    trained = tmp_path / "run"
    train(corpus, trained, 500)
    config = checkpoint.load(trained / "model").config
    assert config["model"]["architecture"] == "decoder_only"
    assert config["training"]["validation sacreBLEU"] > 60  # the validation pairs are trained on
    assert metrics(trained, "val_ppl")[-1] < 2
    translator = Translator.load(trained / "model")
    results = translator.translate([english for english, _ in PAIRS[:20]], beam_size=4)
    correct = sum(r.text == german for r, (_, german) in zip(results, PAIRS[:20], strict=True))
    assert correct > 12


def test_its_translation_does_not_depend_on_the_batch(trained: Path) -> None:
    lines = [english for english, _ in PAIRS[:40]]
    for options in ({"beam_size": 1}, {"beam_size": 4, "n_best": 4}):
        translator = Translator.load(trained / "model", workers=1)
        together = translator.translate(lines, **options)
        alone = [translator.translate([line], **options)[0] for line in lines]
        for one, other in zip(together, alone, strict=True):
            assert [text for text, _ in one.n_best] == [text for text, _ in other.n_best]
            scores = [score for _, score in other.n_best]
            assert [score for _, score in one.n_best] == pytest.approx(scores, abs=1e-4)


def test_attention_shows_the_source(trained: Path, run_translate: Callable[..., Done]) -> None:
    done = run_translate("--model", trained / "model", "--align", "Good morning.")
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(r"(\d+-\d+ ?)+\n", done.out)


def test_it_resumes_bit_for_bit(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"model": "decoder_only_tiny", "model.N": 2, "training.loss_on_source": "true"}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(arguments(corpus, whole, **small), monkeypatch) == 0
    first = arguments(corpus, parts, **small | {"trainer.max_steps": 5})
    assert run(first, monkeypatch) == 0
    assert run([*arguments(corpus, parts, **small), "ckpt=auto"], monkeypatch) == 0
    assert_same_weights(whole, parts)


def test_the_loss_on_both_sides_is_the_mean_over_all_that_is_predicted(bpe: Tokenizer) -> None:
    torch.manual_seed(5)
    module = TranslationModule(bpe, SHAPE, eps_ls=0.1, loss_on_source=True)
    batch = collate([[5, 6, 7], [8]], [[9, 10], [11, 12, 13]])  # type: ignore[list-item]
    loss, nll = module._training_loss_and_nll(batch)
    states, labels = module.model.states_of_both(*batch)  # type: ignore[operator]
    assert module._num_predicted(batch) == len(labels) == 3 + 1 + 3 + 4
    plain = torch.nn.functional.cross_entropy(
        module.model.project(states), labels, label_smoothing=0.1, reduction="sum"
    )
    torch.testing.assert_close(loss, plain)
    target_loss, target_nll = module._loss_and_nll(batch)
    assert target_loss < loss
    assert target_nll < nll


def test_an_encoder_predicts_no_source(bpe: Tokenizer) -> None:
    with pytest.raises(ValueError, match=r"loss_on_source=true is for model\.architecture"):
        TranslationModule(bpe, SHAPE | {"architecture": "encoder_decoder"}, loss_on_source=True)


@pytest.mark.parametrize(
    "variant",
    [
        {"model.norm": "pre"},
        {"model.activation": "gelu"},
        {"model.P_attention": 0.1, "model.P_inner": 0.1},
        {"model.tied_embeddings": "false", "model.scaled_scores": "false"},
    ],
    ids=str,
)
def test_a_variant_trains_and_is_saved(
    variant: dict[str, Any], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(arguments(corpus, tmp_path / "run", **variant), monkeypatch) == 0
    config = checkpoint.load(tmp_path / "run" / "model").model.config
    for name, value in variant.items():
        assert config[name.removeprefix("model.")] == (False if value == "false" else value)


# Text


@pytest.fixture(scope="module")
def text_model(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    verses = ["One two three four five.", "Six seven eight nine ten.", "Red green blue yellow."]
    (folder / "text.txt").write_text("".join(f"{verse}\n" for verse in verses * 60), "utf-8")
    changes = LEARNING | {
        "data": "text",
        "data.train": folder / "text.txt",
        "data.validation": folder / "text.txt",
        "data.clean.duplicates": "false",
        "model": "decoder_only_tiny",
        "model.N": 2,
        "trainer.max_steps": 120,
        "validate_every": 60,
    }
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert run(arguments(corpus, folder / "run", **changes), monkeypatch) == 0
    return folder / "run"


def test_a_model_of_text_reports_perplexity_and_no_bleu(text_model: Path) -> None:
    training = checkpoint.load(text_model / "model").config["training"]
    assert training["validation perplexity"] < 1.5
    assert "validation sacreBLEU" not in training
    log = (text_model / "train.log").read_text()
    assert "perplexity" in log
    assert "sacreBLEU" not in log
    assert (text_model / "checkpoints" / "best.ckpt").is_file()
    assert is_finished(text_model, 120)
    assert "continue_text" in (text_model / "model" / "README.md").read_text()
    assert "--continue" in log


def test_text_is_for_a_decoder_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    book = tmp_path / "book.txt"
    book.write_text("one\ntwo\n", "utf-8")
    text = {"data": "text", "data.train": book, "data.validation": book}
    assert run(arguments(corpus, tmp_path / "run", **text), monkeypatch) == 2
    assert "data=text is for a decoder-only model" in capsys.readouterr().err


def test_it_does_not_translate(text_model: Path, run_translate: Callable[..., Done]) -> None:
    done = run_translate("--model", str(text_model / "model"), "Red")
    assert done.code == 2
    assert "a language model, trained with data=text: give it --continue TEXT" in done.err


def test_it_continues_a_text(text_model: Path, run_translate: Callable[..., Done]) -> None:
    model = ("--model", text_model / "model")
    done = run_translate(*model, "--continue", "Six seven", "--beam-size", "4")
    assert done == Done(0, "Six seven eight nine ten.\n", "")
    options = ("--samples", "3", "--temperature", "0.5", "--top-k", "20", "--seed", "1")
    done = run_translate(*model, "--continue", "Red", *options)
    assert done.code == 0
    lines = done.out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("Red") for line in lines)
    assert "Red green blue yellow." in lines
    assert run_translate(*model, "--continue", "Red", *options).out == done.out
    short = run_translate(*model, "--continue", "One", "--beam-size", "1", "--max-length", "1")
    assert len(short.out) < len("One two three")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--continue a b", "--continue goes without sentences"),
        ("--continue a --input x", "--continue goes without --input"),
        ("--continue a --keep", "--continue goes without --keep"),
        ("--continue a --n-best 2", "--continue goes without --n-best"),
        ("--continue a", "a model with an encoder does not continue a text: train one with data="),
    ],
)
def test_what_cannot_be_continued(
    arguments: str, message: str, greedy: Callable[..., Done]
) -> None:
    done = greedy(*arguments.split())
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
