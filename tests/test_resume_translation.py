"""python -m mt.translate --resume continues what was cut short, and the result is the same."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, PAIRS, Done, babbler, names_in

from mt import translate
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.utils import line_io

LEFT = [".out.partial", ".out.partial.json"]
LINES = [pair[0] for pair in PAIRS[:9]]
Translate = Callable[..., Done]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_io, "BLOCK", 4)


def text(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.fixture
def whole(greedy: Translate, tmp_path: Path) -> bytes:
    """What an undisturbed run writes; ``in`` stays for others."""
    (tmp_path / "in").write_bytes(text(LINES))
    assert greedy("--input", "in", "--output", "out") == Done(0, "", "")
    content = (tmp_path / "out").read_bytes()
    (tmp_path / "out").unlink()
    return content


@pytest.fixture
def cut_short(greedy: Translate, whole: bytes, tmp_path: Path) -> Done:
    """A run that stops at its tenth line, eight being kept."""
    (tmp_path / "bad").write_bytes(text(LINES) + b"\xff\n")
    return greedy("--input", "bad", "--output", "out")


# Cut short


def test_an_error_keeps_what_is_translated(cut_short: Done, whole: bytes, tmp_path: Path) -> None:
    assert cut_short.code == 2
    assert cut_short.err.splitlines() == [
        "mt.translate: 8 lines are translated and kept: continue with --resume",
        "mt.translate: error: bad, line 10: not UTF-8 (invalid start byte): save it as UTF-8",
    ]
    assert names_in(tmp_path) == [*LEFT, "bad", "in"]
    assert (tmp_path / LEFT[0]).read_bytes() == b"".join(whole.splitlines(keepends=True)[:8])


@pytest.mark.usefixtures("cut_short")
def test_a_resumed_run_translates_only_the_rest(
    greedy: Translate, whole: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    original = translate.Translator.translate
    monkeypatch.setattr(
        translate.Translator,
        "translate",
        lambda self, lines, *args, **named: (
            seen.extend(lines) or original(self, lines, *args, **named)
        ),
    )
    assert greedy("--input", "in", "--output", "out", "--resume") == Done(0, "", "")
    assert (tmp_path / "out").read_bytes() == whole
    assert seen == LINES[8:]
    assert names_in(tmp_path) == ["bad", "in", "out"]


@pytest.mark.usefixtures("cut_short")
@pytest.mark.parametrize("source", ["pipe", "arguments"])
def test_it_does_not_matter_where_the_lines_come_from(
    greedy: Translate, whole: bytes, tmp_path: Path, source: str
) -> None:
    if source == "pipe":
        done = greedy("--output", "out", "--resume", stdin=text(LINES))
    else:
        done = greedy("--output", "out", "--resume", "--no-split", *LINES)  # as lines of a file
    assert done == Done(0, "", "")
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.usefixtures("cut_short")
def test_line_numbers_go_on(greedy: Translate, tmp_path: Path) -> None:
    done = greedy("--input", "bad", "--output", "numbered", "--n-best", "1")
    assert done.code == 2
    assert greedy("--input", "in", "--output", "numbered", "--n-best", "1", "--resume").code == 0
    rows = (tmp_path / "numbered").read_text(encoding="utf-8").splitlines()
    assert [row.split("\t")[0] for row in rows] == [str(i) for i in range(1, 10)]


@pytest.mark.usefixtures("cut_short")
def test_a_file_of_that_name_is_replaced_in_the_end(
    greedy: Translate, whole: bytes, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("of yesterday")
    assert greedy("--input", "in", "--output", "out", "--resume").code == 0
    assert (tmp_path / "out").read_bytes() == whole


@pytest.mark.usefixtures("cut_short")
def test_what_is_kept_is_dropped_on_demand_alone(
    greedy: Translate, whole: bytes, tmp_path: Path
) -> None:
    before = {name: (tmp_path / name).read_bytes() for name in LEFT}
    done = greedy("--input", "in", "--output", "out")
    assert_refused(done, "kept 8 line(s): continue with --resume, or begin anew with --restart")
    assert {name: (tmp_path / name).read_bytes() for name in LEFT} == before
    both = greedy("--input", "in", "--output", "out", "--resume", "--restart")
    assert_refused(both, "give --resume or --restart, not both")
    assert greedy("--input", "in", "--output", "out", "--restart") == Done(0, "", "")
    assert (tmp_path / "out").read_bytes() == whole
    assert names_in(tmp_path) == ["bad", "in", "out"]


# Refused


def assert_refused(done: Done, message: str) -> None:
    assert (done.code, done.out) == (2, "")
    assert message in done.err.splitlines()[-1]


@pytest.mark.usefixtures("cut_short")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "1"], "begun with alpha=0.6, not 1.0: give the same again"),
        (["--json"], "begun with json=False, not True"),
        (["--prefix", "Ich"], "begun with prefix=None, not 'Ich'"),
        (["--precision", "int8"], "begun with precision='float32', not 'int8'"),
        (["--attention", "--json"], "begun with attention=False, not True"),
        (["--batch-size", "8"], "begun with batch_size=64, not 8"),
    ],
)
def test_other_options_are_refused(
    greedy: Translate, tmp_path: Path, arguments: list[str], message: str
) -> None:
    before = {name: (tmp_path / name).read_bytes() for name in LEFT}
    assert_refused(greedy("--input", "in", "--output", "out", "--resume", *arguments), message)
    assert {name: (tmp_path / name).read_bytes() for name in LEFT} == before


@pytest.mark.usefixtures("cut_short")
def test_another_model_is_refused(
    run_translate: Translate, small_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = babbler(small_tokenizer.vocab_size)
    checkpoint.save(tmp_path / "other", model, small_tokenizer, 40, ["en", "de"], {})
    fixed = ("--model", "other", "--beam-size", "1", "--input", "in", "--output", "out")
    assert_refused(run_translate(*fixed, "--resume"), "begun with another model")


@pytest.mark.usefixtures("cut_short")
@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*LINES[:7], "other", LINES[8]], "begun with another input"),
        (LINES[:7], "begun with a longer input"),
        ([], "begun with a longer input"),
    ],
)
def test_another_input_is_refused(
    greedy: Translate, tmp_path: Path, lines: list[str], message: str
) -> None:
    assert_refused(greedy("--output", "out", "--resume", stdin=text(lines)), message)
    assert set(LEFT) < set(names_in(tmp_path))


def test_a_finished_file_is_not_made_again(greedy: Translate, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("of yesterday")
    assert_refused(greedy("--output", "out", "--resume", "bear"), "nothing was cut short")
    assert names_in(tmp_path) == ["out"]
    assert (tmp_path / "out").read_text() == "of yesterday"
    assert_refused(greedy("--resume", "bear"), "--resume is for an --output")
    assert_refused(greedy("--restart", "bear"), "--restart is for an --output")


@pytest.mark.usefixtures("cut_short")
@pytest.mark.parametrize("name", LEFT)
def test_what_is_damaged_is_refused_and_can_begin_anew(
    greedy: Translate, whole: bytes, tmp_path: Path, name: str
) -> None:
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"\0" * 20 + content[20:])
    done = greedy("--input", "in", "--output", "out", "--resume")
    assert_refused(done, f"{name} is damaged: begin anew with --restart")
    assert names_in(tmp_path) == [*LEFT, "bad", "in"]
    assert greedy("--input", "in", "--output", "out", "--restart") == Done(0, "", "")
    assert (tmp_path / "out").read_bytes() == whole


# Two at once


def test_the_second_process_is_refused_and_the_first_has_its_own(
    waiting: Callable, greedy: Translate, whole: bytes, tmp_path: Path
) -> None:
    process = waiting()
    for resume in ([], ["--resume"]):
        done = greedy("--output", "out", *resume, "bear")
        assert_refused(done, "out: another process is writing it: name another")
    process.stdin.close()
    assert process.wait(20) == 0
    assert (tmp_path / "out").read_bytes() == whole
    assert names_in(tmp_path) == ["in", "out"]


# Killed


@pytest.fixture
def waiting(
    model_folder: Path, whole: bytes, tmp_path: Path
) -> Iterator[Callable[[], subprocess.Popen]]:
    """A process that has translated two blocks of a pipe and waits for the rest of the third."""
    program = (
        "import sys, mt.utils.line_io; mt.utils.line_io.BLOCK = 4\n"
        "from mt.translate import main; sys.exit(main())"
    )
    arguments = ["--model", str(model_folder), "--beam-size", "1", "--output", "out"]
    # What a job in the background starts, as these tests may be, would ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=ENVIRONMENT,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert process.stdin is not None

    def start() -> subprocess.Popen:
        process.stdin.write(text(LINES).decode())
        process.stdin.flush()
        record, end = tmp_path / LEFT[1], time.monotonic() + 60
        while not record.is_file() or json.loads(record.read_text())["lines"] < 8:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.01)
        time.sleep(0.1)  # now it reads
        return process

    with process:
        yield start
        process.kill()


def test_a_run_that_was_killed_gives_the_same_file_in_the_end(
    waiting: Callable, greedy: Translate, whole: bytes, tmp_path: Path
) -> None:
    process = waiting()
    process.send_signal(signal.SIGKILL)
    assert process.wait(20) == -signal.SIGKILL
    assert names_in(tmp_path) == [".out.lock", *LEFT, "in"]
    assert greedy("--input", "in", "--output", "out", "--resume") == Done(0, "", "")
    assert (tmp_path / "out").read_bytes() == whole
    assert names_in(tmp_path) == ["in", "out"]


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_ends_in_one_line_and_keeps_what_is_translated(
    waiting: Callable, greedy: Translate, whole: bytes, tmp_path: Path, sent: int, status: int
) -> None:
    """Even while a thread waits for a line that does not come."""
    process = waiting()
    process.send_signal(sent)
    assert process.wait(20) == status
    assert process.stderr.read() == (
        "mt.translate: 8 lines are translated and kept: continue with --resume\n"
    )
    assert names_in(tmp_path) == [*LEFT, "in"]
    assert greedy("--input", "in", "--output", "out", "--resume").code == 0
    assert (tmp_path / "out").read_bytes() == whole
