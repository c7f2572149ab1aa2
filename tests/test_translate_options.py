"""python -m mt.translate: what its flags ask for, and what it prints then."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import PAIRS, Done, babbler, write_lines

from mt import translate
from mt.data.tokenizer import Tokenizer
from mt.inference.arguments import SEARCH_HELP
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.utils import line_io

Translate = Callable[..., Done]
LINES = [pair[0] for pair in PAIRS[:6]]
GERMAN = [pair[1] for pair in PAIRS[:6]]


@pytest.fixture(scope="module")
def folders(small_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models of one vocabulary."""
    root = tmp_path_factory.mktemp("babblers")
    for seed in (0, 1):
        model = babbler(small_tokenizer.vocab_size, seed, h=4)
        checkpoint.save(root / str(seed), model, small_tokenizer, 40, ["en", "de"], {})
    return [root / "0", root / "1"]


@pytest.fixture(scope="module")
def translator(folders: list[Path]) -> Translator:
    return Translator.load(folders[0], "cpu")


@pytest.fixture
def run(run_translate: Translate, folders: list[Path]) -> Translate:
    def call(*arguments: str | Path, stdin: bytes = b"") -> Done:
        return run_translate("--model", folders[0], *arguments, stdin=stdin)

    return call


def assert_refused(done: Done, message: str) -> None:
    assert done.code == 2
    assert message in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


# Searching


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ("", {}),
        ("--beam-size 2 --alpha 1", {"beam_size": 2, "alpha": 1.0}),
        ("--min-length 5", {"min_length": 5}),
        ("--max-length 3", {"max_length": 3}),
        ("--no-repeat-ngram 1", {"no_repeat_ngram": 1}),
        ("--repetition-penalty 2", {"repetition_penalty": 2.0}),
        ("--samples 2", {"samples": 2}),
        ("--samples 2 --seed 5", {"samples": 2, "seed": 5}),
        ("--samples 2 --temperature 0.5", {"samples": 2, "temperature": 0.5}),
        ("--samples 2 --top-k 3", {"samples": 2, "top_k": 3}),
        ("--samples 2 --top-p 0.5", {"samples": 2, "top_p": 0.5}),
        ("--samples 5 --mbr", {"samples": 5, "mbr": True}),
        ("--mbr", {"mbr": True}),
    ],
)
def test_flags_are_the_options_of_the_search(
    run: Translate, translator: Translator, arguments: str, options: dict
) -> None:
    parsed = translate.search_options(translate.parse(arguments.split()), SearchOptions())
    assert parsed == SearchOptions(**options)
    expected = [result.text for result in translator.translate(LINES, **options)]
    assert run(*arguments.split(), *LINES) == Done(0, "".join(f"{t}\n" for t in expected), "")


def test_every_option_has_a_flag() -> None:
    flags = SEARCH_HELP.keys() | {"mbr", "attention"}
    assert flags == set(SearchOptions.__dataclass_fields__)


def test_several_models_are_an_ensemble(run_translate: Translate, folders: list[Path]) -> None:
    done = run_translate("--model", folders[0], "--model", folders[1], *LINES)
    expected = Translator.load(folders, "cpu").translate(LINES)
    assert done == Done(0, "".join(f"{result.text}\n" for result in expected), "")
    twice = run_translate("--model", folders[0], "--model", folders[0], *LINES)
    assert twice == run_translate("--model", folders[0], *LINES) != done


def test_models_of_two_vocabularies_are_refused(
    run: Translate, bpe: Tokenizer, tmp_path: Path
) -> None:
    checkpoint.save(tmp_path / "other", babbler(bpe.vocab_size), bpe, 40, ["en", "de"], {})
    assert_refused(run("--model", "other", "bear"), "an ensemble needs models of one vocabulary")


def test_a_prefix_begins_every_line(run: Translate) -> None:
    done = run("--prefix", "Der Bär", *LINES)
    assert len(done.out.splitlines()) == len(LINES)
    assert all(line.startswith("Der Bär") for line in done.out.splitlines())


def test_split_translates_the_sentences_of_a_line(run: Translate, translator: Translator) -> None:
    line = " ".join(LINES[:3])
    expected = " ".join(result.text for result in translator.translate(LINES[:3]))
    whole = f"{translator.translate([line])[0].text}\n\n"
    assert whole != f"{expected}\n\n"
    for default, arguments, stdin in (
        (True, [line, ""], b""),  # as people type
        (False, [], f"{line}\n\n".encode()),  # as a corpus has it
    ):
        assert run("--split", *arguments, stdin=stdin) == Done(0, f"{expected}\n\n", "")
        assert run("--no-split", *arguments, stdin=stdin) == Done(0, whole, "")
        assert run(*arguments, stdin=stdin) == Done(0, f"{expected}\n\n" if default else whole, "")


# Speed


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precision_reaches_the_model(run: Translate, folders: list[Path], precision: str) -> None:
    expected = Translator.load(folders[0], "cpu", precision).translate(LINES)
    done = run("--precision", precision, "--json", *LINES)
    scores = [json.loads(line)["score"] for line in done.out.splitlines()]
    assert scores == pytest.approx([result.score for result in expected], abs=1e-4)
    plain = [json.loads(line)["score"] for line in run("--json", *LINES).out.splitlines()]
    assert scores != pytest.approx(plain, abs=1e-4)


def test_workers_change_nothing(run: Translate) -> None:
    lines = [pair[0] for pair in PAIRS]
    assert run("--workers", "3", "--batch-size", "4", *lines) == run("--workers", "1", *lines)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--precision half", "argument --precision: invalid choice: 'half'"),
        ("--workers 0", "workers=0: must be a whole number"),
        ("--tokens", "are printed with --json"),
        ("--attention", "are printed with --json"),
        ("--score x --split", "--score does not search: leave out --split"),
        ("--score x --n-best 2", "--score does not search: leave out --n-best"),
        ("--score x --samples 2", "--score does not search: leave out --samples"),
        ("--samples 2 --beam-size 3", "--beam-size needs beam search: leave out --samples"),
        ("--alternatives 2 --beam-size 3", "--beam-size needs beam search: leave out"),
        ("--alternatives 2 --seed 3", "--seed is the seed of --samples"),
        ("--seed 3", "--seed is the seed of --samples: add them"),
        ("--temperature 2", "are for sampling: set samples too"),
        ("--mbr --beam-size 1", "mbr chooses among hypotheses"),
        ("--samples 2 --n-best 3", "n_best=3: must not exceed samples=2"),
        ("--min-length 3 --max-length 2", "min_length=3: must not exceed max_length=2"),
        ("--score missing", "error: missing: no such file or directory"),
        ("--output missing/out", "there is no folder"),
    ],
)
def test_flags_that_make_no_sense(run: Translate, arguments: str, message: str) -> None:
    assert_refused(run(*arguments.split(), "--", "bear"), message)


def test_a_missing_folder_is_named_before_a_model_is_loaded(
    run: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate, "load_translator", None)
    assert_refused(run("--output", "missing/out", "--", "bear"), "there is no folder")


# JSON


def test_tokens_are_pieces_with_log_probabilities(run: Translate, translator: Translator) -> None:
    done = run("--json", "--tokens", LINES[0], "")
    one, blank = (json.loads(line) for line in done.out.splitlines())
    [part] = one["parts"]
    [expected] = translator.translate(LINES[:1])
    assert part.keys() == {"source", "translation", "log_probs"}
    assert part["source"] == [*expected.parts[0].source, "</s>"]
    assert part["translation"] == [*expected.parts[0].output, "</s>"]
    assert part["log_probs"] == pytest.approx(expected.parts[0].log_probs, abs=1e-5)
    assert blank["parts"] == []


def test_attention_has_a_row_for_each_piece(run: Translate) -> None:
    done = run("--json", "--attention", "--split", " ".join(LINES[:2]))
    record = json.loads(done.out)
    assert len(record["parts"]) == 2
    for part in record["parts"]:
        assert len(part["attention"]) == len(part["translation"])
        for row in part["attention"]:
            assert len(row) == len(part["source"])
            assert sum(row) == pytest.approx(1, abs=0.01)


# Scoring


def test_scores_of_given_translations(
    run: Translate, translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 4)
    write_lines(tmp_path / "in", LINES)
    write_lines(tmp_path / "out", GERMAN)
    done = run("--input", "in", "--score", "out")
    expected = [sum(r.parts[0].log_probs) for r in translator.score(LINES, GERMAN)]
    assert [float(line) for line in done.out.splitlines()] == pytest.approx(expected, abs=1e-3)
    records = run("--input", "in", "--score", "out", "--json", "--tokens", "--alpha", "0").out
    for line, source, target, log_prob in zip(
        records.splitlines(), LINES, GERMAN, expected, strict=True
    ):
        record = json.loads(line)
        assert (record["source"], record["translation"]) == (source, target)
        assert record["score"] == pytest.approx(log_prob, abs=1e-3)
        assert record["log_prob"] == pytest.approx(log_prob, abs=1e-3)
        assert sum(record["parts"][0]["log_probs"]) == pytest.approx(log_prob, abs=1e-3)


@pytest.mark.parametrize(("number", "message"), [(3, "fewer lines"), (5, "fewer"), (7, "more")])
def test_as_many_translations_as_sources(
    run: Translate,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    message: str,
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 4)
    write_lines(tmp_path / "in", LINES)
    write_lines(tmp_path / "scored", ["der Bär"] * number)
    piped = run("--score", "scored", stdin=(tmp_path / "in").read_bytes())
    assert_refused(piped, f"scored: {message}")
    # Files are counted before anything is scored.
    named = f"scored: has {number} lines, in has {len(LINES)}: give one translation for each line"
    done = run("--input", "in", "--score", "scored")
    assert_refused(done, named)
    assert done.out == ""


def test_a_resumed_score_pairs_the_right_lines(
    run: Translate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lines(tmp_path / "in", LINES)
    write_lines(tmp_path / "scored", GERMAN)
    flags = ("--score", "scored", "--output", "out")
    expected = run("--input", "in", "--score", "scored").out
    monkeypatch.setattr(line_io, "BLOCK", 4)
    (tmp_path / "bad").write_bytes((tmp_path / "in").read_bytes()[:-3] + b"\xff")
    assert run("--input", "bad", *flags).code == 2
    monkeypatch.setattr(line_io, "BLOCK", 6)  # what is kept ends within a block
    write_lines(tmp_path / "scored", [*GERMAN[:5], "der Bär"])
    assert_refused(run("--input", "in", *flags, "--resume"), "begun with another score")
    write_lines(tmp_path / "scored", GERMAN)
    assert run("--input", "in", *flags, "--resume") == Done(0, "", "")
    assert (tmp_path / "out").read_text() == expected


# Progress


@pytest.mark.parametrize("terminal", [True, False])
def test_a_bar_is_for_files_and_terminals(
    run: Translate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    write_lines(tmp_path / "in", [*LINES, "", "bear"])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    expected = run(*LINES, "", "bear")
    assert expected.err == ""
    assert run(stdin=(tmp_path / "in").read_bytes()) == expected
    done = run("--input", "in")
    assert (done.code, done.out) == (0, expected.out)
    if terminal:
        assert "8/8" in done.err
        assert " lines/s" in done.err
    else:
        assert done.err == ""


# Closed or full


def test_closed_standard_error_does_not_reach_the_output(
    run: Translate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``2>&-``: no message among the translations, and no fall over a bar."""
    expected = run("a " * 100)
    assert "parts" in expected.err
    write_lines(tmp_path / "in", ["a " * 100])
    monkeypatch.setattr(sys, "stderr", None)
    assert run("--input", "in") == Done(0, expected.out, "")
    monkeypatch.setattr(sys, "stderr", None)
    assert run("--beam-size", "0", "bear") == Done(2, "", "")


def test_closed_standard_output_is_told(run: Translate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert_refused(run("bear"), "standard output is closed: give --output")
    assert run("bear", "--output", "out") == Done(0, "", "")


def test_closed_standard_input_does_not_matter_to_arguments(
    run_translate: Translate, folders: list[Path]
) -> None:
    assert run_translate("--model", folders[0], "bear", stdin=None).code == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_is_told(run: Translate) -> None:
    assert_refused(run("bear", "--output", "/dev/full"), "error: no space left on device")


def test_an_argument_that_is_not_utf8_is_no_fall(run: Translate) -> None:
    done = run("--json", "a b\udcffear")
    assert json.loads(done.out)["source"] == "a b?ear"


def test_too_little_memory_is_one_line(run: Translate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 GB")

    monkeypatch.setattr("mt.inference.translator.search", fail)
    assert_refused(run("bear"), "out of memory: give a smaller --batch-size or --beam-size")
