"""mt.translate: one line in, one line out; formats of the output; its pipe."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ENVIRONMENT, Done
from translate_helpers import Translate, assert_error

from mt.inference import beam_search
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.utils import line_io

pytest_plugins = ["translate_helpers"]


# One line in, one line out


def test_sentences_as_arguments(greedy: Translate, expected: Callable) -> None:
    sentences = ["The bear hears the door.", "An apple", "", "two\nlines"]
    done = greedy(*sentences)
    assert done.code == 0
    assert done.out.split("\n") == [*expected([*sentences[:3], "two", "lines"]), ""]
    assert len(set(done.out.split("\n"))) >= 4, "a model that ignores its source"
    assert done.err == ""


@pytest.mark.parametrize(
    ("stdin", "lines"),
    [
        (b"", []),
        (b"a door", ["a door"]),
        (b"a door\n", ["a door"]),
        (b"\n", [""]),
        (b"a door\n\n \n\t\nthe key\n\n", ["a door", "", "", "", "the key", ""]),
        (b"a door\r\nthe key\r\n", ["a door", "the key"]),
        (b"a\rdoor\rthe key\nbear\r", ["a\rdoor\rthe key", "bear"]),
        ("a\u2028door\u0085b\x0cc\x1ed\nbear\n".encode(), ["a\u2028door\u0085b\x0cc\x1ed", "bear"]),
        (b"\xef\xbb\xbfa door\n", ["\ufeffa door"]),
        ("Größe 😀 \u200b\n\u200b\nx\n".encode(), ["Größe 😀 \u200b", "\u200b", "x"]),
        (b'"a "door\n\'the\n', ['"a "door', "'the"]),
        (b"--help\n-x\n", ["--help", "-x"]),
    ],
)
@pytest.mark.parametrize("channel", ["pipe", "file"])
def test_one_line_out_for_each_line_in(
    greedy: Translate,
    expected: Callable,
    tmp_path: Path,
    stdin: bytes,
    lines: list[str],
    channel: str,
) -> None:
    if channel == "file":
        (tmp_path / "in put.txt").write_bytes(stdin)
        done = greedy("--input", "in put.txt")
    else:
        done = greedy(stdin=stdin)
    assert (done.code, done.err) == (0, "")
    assert done.out.split("\n") == [*expected(lines), ""]


def test_ten_thousand_blank_lines(greedy: Translate) -> None:
    assert greedy(stdin=b"\n" * 10_000) == Done(0, "\n" * 10_000, "")


def test_blocks_keep_their_order(
    greedy: Translate, expected: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 3)
    lines = ["a door", "", "bear", "the key", "an apple", "", "", "friend"]
    done = greedy("--batch-size", "2", stdin="\n".join(lines).encode())
    assert done.out.split("\n") == [*expected(lines), ""]


def test_a_line_of_ten_thousand_words_is_one_line_with_a_warning(greedy: Translate) -> None:
    done = greedy(stdin=b"a " * 10_000 + b"\nbear\n")
    assert done.code == 0
    assert done.out.count("\n") == 2
    [warning] = done.err.splitlines()
    assert warning.startswith("mt.translate: a line of 10000 tokens, 'a a a")
    assert "parts" in warning


# Formats


def test_json_is_an_object_a_line(greedy: Translate, expected: Callable) -> None:
    lines = ["the bear", "", "Größe"]
    done = greedy("--json", stdin="\n".join(lines).encode())
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["source"] for record in records] == lines
    assert [record["translation"] for record in records] == expected(lines)
    keys = {"source", "translation", "score", "confidence"}
    assert all(record.keys() == keys for record in records)
    assert 0 < records[0]["confidence"] < records[1]["confidence"] == 1
    assert records[0]["score"] < 0
    assert records[1]["score"] == 0
    assert "Größe" in done.out  # not escaped


def test_n_best_gives_number_score_and_text(run_translate: Translate, model_folder: Path) -> None:
    done = run_translate("--model", model_folder, "--n-best", "3", stdin=b"the bear\n\na door\n")
    rows = [line.split("\t") for line in done.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
    assert rows[3] == ["2", "0.0000", ""]
    for three in (rows[:3], rows[4:]):
        scores = [float(score) for _, score, _ in three]
        assert scores == sorted(scores, reverse=True)
    plain = run_translate("--model", model_folder, stdin=b"the bear\n\na door\n").out.splitlines()
    assert [rows[0][2], rows[3][2], rows[4][2]] == plain


def test_line_numbers_go_on_from_block_to_block(
    greedy: Translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 2)
    done = greedy("--n-best", "1", stdin=b"a\nb\nc\nd\ne\n")
    assert [line.split("\t")[0] for line in done.out.splitlines()] == ["1", "2", "3", "4", "5"]


def test_json_and_n_best_together(run_translate: Translate, model_folder: Path) -> None:
    done = run_translate("--model", model_folder, "--json", "--n-best", "2", "the bear", " ")
    one, blank = (json.loads(line) for line in done.out.splitlines())
    assert [set(entry) for entry in one["n_best"]] == [{"translation", "score"}] * 2
    assert one["n_best"][0] == {"translation": one["translation"], "score": one["score"]}
    assert blank["n_best"] == [{"translation": "", "score": 0.0}]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[SearchOptions]:
    """The options of each search that the test runs."""
    searches: list[SearchOptions] = []

    def search(*arguments: Any) -> list:
        searches.append(arguments[2])
        return beam_search.search(*arguments)

    monkeypatch.setattr("mt.inference.translator.search", search)
    return searches


def test_alpha_and_beam_size_reach_the_search(
    run_translate: Translate, model_folder: Path, searches: list[SearchOptions]
) -> None:
    assert run_translate("--model", model_folder, "a").code == 0
    assert run_translate("--model", model_folder, "a", "--beam-size", "2", "--alpha", "0").code == 0
    paper, other = searches
    assert (paper.beam_size, paper.alpha) == (4, 0.6)  # 6.1
    assert (other.beam_size, other.alpha) == (2, 0.0)


def test_a_model_may_name_its_own_search(
    run_translate: Translate, model_folder: Path, tmp_path: Path, searches: list[SearchOptions]
) -> None:
    shutil.copytree(model_folder, tmp_path / "own")
    file = tmp_path / "own" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "search": {"beam_size": 3, "alpha": 1.2}}))
    assert run_translate("--model", "own", "a").code == 0
    assert run_translate("--model", "own", "a", "--alpha", "0.5").code == 0
    Translator.load("own").translate(["a"], beam_size=2)
    assert [(options.beam_size, options.alpha) for options in searches] == [
        (3, 1.2),
        (3, 0.5),
        (2, 1.2),
    ]
    model = Translator.load("own")
    scores = [model.score(["a"], ["b"], alpha)[0].score for alpha in (None, 1.2, 0.6)]
    assert scores[0] == scores[1] != scores[2]
    done = run_translate("--model", "own", "a", "--n-best", "3")  # as many as its own beam has
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert_error(run_translate("--model", "own", "a", "--n-best", "4"), "beam_size=3")
    odd = ({"alpha": -1}, {"n_best": 2}, 7, [], {"alpha": 1e300}, {"beam_size": True}, ["alpha"])
    for wrong in (
        *odd,
        {"beam_size": 101},
        {"beam_size": 10**30},
        {"x" * 10**5: 1},
        {"alpha": None},
    ):
        file.write_text(json.dumps({**config, "search": wrong}))
        done = run_translate("--model", "own", "a")
        assert_error(done, "own/config.json: search=")
        assert len(done.err) < 500


def test_an_output_of_another_search_does_not_go_on(
    run_translate: Translate, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 2)
    shutil.copytree(model_folder, tmp_path / "own")
    (tmp_path / "in").write_text("a\nb\nc\nd\n")
    arguments = ("--model", "own", "--input", "in", "--output", "out", "--resume")

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        calls = iter([beam_search.search])
        patch.setattr("mt.inference.translator.search", lambda *a: next(calls, stopped)(*a))
        assert run_translate(*arguments).code == 130
    file = tmp_path / "own" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "search": {"alpha": 1.2}}))
    assert_error(run_translate(*arguments), "alpha")


# As a process


def test_a_pipe_is_answered_line_by_line(model_folder: Path, expected: Callable) -> None:
    """And in UTF-8 whatever the locale; a test that waits for ever has found a fault."""
    process = subprocess.Popen(
        [sys.executable, "-m", "mt.translate", "--model", str(model_folder), "--beam-size", "1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line in ("Der Bär hört die Tür.", "", "öffnet"):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()
        assert process.stdout.readline().decode("utf-8") == expected([line])[0] + "\n"
    process.stdin.close()
    assert process.stdout.read() == b""
    assert process.wait(20) == 0


def test_a_reader_that_goes_away_is_no_error(model_folder: Path, tmp_path: Path) -> None:
    command = (
        f"'{sys.executable}' -m mt.translate --model '{model_folder}' --input in --beam-size 1 "
        "--json | head -n 1; exit ${PIPESTATUS[0]}"
    )
    (tmp_path / "in").write_text("\n" * 200_000)  # more than a pipe holds
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert json.loads(done.stdout)["translation"] == ""
    assert done.returncode == 0
