"""python -m mt.corpus: what it refuses, and back-translation as its page shows it."""

import argparse
import builtins
import gzip
import json
import re
import secrets
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, write_lines

from mt import corpus

PAGE = Path(__file__).resolve().parents[1] / "docs" / "corpora.md"


@pytest.fixture
def refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """The error of a command, which must be one line, with status 2."""
    pytest.importorskip("ray")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    write_lines(tmp_path / "in.txt", ["Hello."])
    write_lines(tmp_path / "in.jsonl", ['{"en": "Hello."}'])

    def run(*arguments: str) -> str:
        try:
            status = corpus.main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = int(end.code or 0)
        assert status == 2
        return capsys.readouterr().err.splitlines()[-1]

    return run


FILES = ("--input", "in.txt", "--output", "out.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "required: {translate,score,filter}"),
        (("translate", "--input", "no.txt", "--output", "out.txt"), "no input: no.txt"),
        (("translate", *FILES[:3], "in.txt"), "in.txt is read, and in.txt would replace it"),
        (("translate", *FILES, "--model", "nowhere"), "nowhere"),
        (("translate", *FILES, "--beam-size", "0"), "beam_size=0: must be"),
        (("translate", *FILES, "--threads", "0"), "threads=0: must be"),
        (("translate", *FILES, "--column", "=en"), "--column =en: must be NAME or NAME=NAME"),
        (("translate", *FILES, "--block-rows", "0"), "block_rows=0: must be"),
        (("translate", *FILES, "--max-errors", "-1"), "max_errors=-1: must be"),
        (("translate", *FILES, "--device", "tpu"), "invalid choice: 'tpu'"),
        (
            ("translate", "--input", "in.jsonl", "--output", "out.jsonl", "--column", "de"),
            "in.jsonl: no column 'de'; it has 'en'",
        ),
        (
            ("score", "--input", "in.jsonl", "--output", "o.jsonl", "--source", "en"),
            "no column 'target'",
        ),
        (("score", *FILES), "in.txt: a text is one column, not 'source', 'target': give .jsonl"),
        (("filter", *FILES, "--min-score", "0"), "a text is one column, not 'text', 'score'"),
        (("filter", *FILES, "--target", "de", "--max-ratio", "2"), "not 'text', 'de'"),
        (("translate", *FILES[:3], "out.bz2"), "out.bz2: .bz2 is not supported, but text"),
        (("filter", *FILES), "nothing to filter by"),
        (("filter", *FILES, "--source-language", "xx"), "not a code that py3langid knows"),
        (("filter", *FILES, "--min-length", "x"), "invalid int value: 'x'"),
        (("translate", "--input", "s9://x", "--output", "out.txt"), "s9://x: Protocol not known"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], message: str, refuse: Callable[..., str]) -> None:
    assert message in refuse(*arguments)
    assert not Path("out.txt").exists()


def test_an_output_that_is_there_is_refused(refuse: Callable[..., str]) -> None:
    write_lines(Path("out.txt"), ["Mine."])
    message = "out.txt exists: name another --output, or give --overwrite"
    assert message in refuse("translate", *FILES)
    assert Path("out.txt").read_text() == "Mine.\n"


def test_without_ray(refuse: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "mt.corpora.actors":
            raise ImportError("No module named 'ray'")
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    message = refuse("translate", *FILES)
    assert re.search(r"Ray Data is not installed \(.*'ray'\): (pip|pyproject)", message)


def test_what_a_run_tells() -> None:
    from mt.corpora.job import Summary

    summary = Summary(10, 7, 4, 1, errors_file="o.errors.jsonl", warnings=3, first_warning="long")
    summary.dropped.update(min_score=2, max_ratio=1)
    assert corpus.describe(summary) == (
        "7 of 10 rows written; 4 were done before; 2 left out by min_score; "
        "1 left out by max_ratio; 1 bad: o.errors.jsonl; 3 warnings, the first: long"
    )


def recipe() -> list[list[str]]:
    """The commands of the page's recipe, without `python -m`."""
    _, _, section = PAGE.read_text("utf-8").partition("\n## Back-translation\n")
    [block] = re.findall(r"^```sh\n(python -m mt\.train.*?)^```$", section, re.M | re.S)
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[2:] for line in lines]


TINY = (
    "model=tiny", "model.N=1", "model.d_model=16", "model.d_ff=32", "model.h=2",
    "tokenizer.vocab_size=300", "data.tokens_per_step=800", "training.warmup_steps=50",
    "validate_every=10", "checkpoint_every=10", "search.beam_size=1", "trainer.max_steps=10",
    "trainer.accelerator=cpu", "trainer.devices=1",
)  # fmt: skip


@pytest.mark.slow
def test_back_translation(
    run_module: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Train in reverse, translate German text, filter, train on both: the page's own commands."""
    pytest.importorskip("ray")
    from train_helpers import PAIRS

    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    records = [json.dumps({"en": english, "de": german}) for english, german in PAIRS]
    write_lines(tmp_path / "train" / "real.jsonl", records[:300])
    write_lines(tmp_path / "validation.jsonl", records[300:320])
    (tmp_path / "mono").mkdir()
    text = "".join(f"{german}\n" for _, german in PAIRS[320:])
    (tmp_path / "mono" / "news.de.gz").write_bytes(gzip.compress(b"\xff\n" + text.encode()))
    programs = recipe()
    assert [program for program, *_ in programs] == [
        "mt.train", "mt.corpus", "mt.corpus", "mt.train"
    ]  # fmt: skip
    tiny = {"mt.train": TINY, "translate": ("--beam-size", "1", "--block-rows", "32"), "filter": ()}
    for program, *arguments in programs:
        options = tiny[program if program == "mt.train" else arguments[0]]
        done = run_module(program, *(a for a in arguments if "experiment" not in a), *options)
        assert done.code == 0, done.err
    for errors in ("back.jsonl.errors.jsonl", "train/back.jsonl.errors.jsonl"):
        assert json.loads((tmp_path / errors).read_text())["number"] == 1
    pairs = [json.loads(line) for line in (tmp_path / "train" / "back.jsonl").open()]
    assert [pair["de"] for pair in pairs] == [german for _, german in PAIRS[320:]]
    assert all(isinstance(pair["en"], str) for pair in pairs)
    assert (tmp_path / "outputs" / "both" / "model" / "config.json").is_file()


def test_every_option_is_said_to_the_search() -> None:
    """No option of mt.corpus is lost between its name and SearchOptions."""
    arguments = ["translate", *FILES, "--samples", "2", "--temperature", "0.7", "--seed", "9"]
    args = corpus.make_parser().parse_args([*arguments, "--max-length", "33"])
    assert isinstance(args, argparse.Namespace)
    options = corpus.make_operation(args).options  # type: ignore[attr-defined]
    assert (options.samples, options.temperature, options.seed) == (2, 0.7, 9)
    assert (options.max_length, options.beam_size) == (33, 4)
