"""README.md and docs/: no dead link, and each command and snippet runs or says why it does not.

A comment on the line before a block marks it:

    <!-- slow -->               only ``pytest -m slow`` runs it
    <!-- not run: REASON -->    no test runs it

The settings and options of every command are checked in all three cases.
"""

import argparse
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob

from mt import Translator
from mt.model import checkpoint

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "mt" / "everyday" / "README.md",
    ROOT / "tokenizer" / "README.md",
    *DOCS,
]
QUICK_PAGES = ("README.md", "docs/architecture.md")  # whose commands take seconds

FENCE = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`((?:python|scripts/|make )[^`]+)`")
FILE = re.compile(
    r"`((?:conf|docs|mt|results|scripts|tests|tokenizer)/[^`\s]*)`|(\btests/[\w/]+\.py)"
)
HYDRA = {  # program: the configuration that it composes
    "mt.train": "train",
    "mt.evaluate": "evaluate",
    "scripts/prepare_data.py": "train",
    "scripts/train_tokenizer.py": "train",
}


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    mark: str
    language: str
    text: str


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(
            str(page.relative_to(ROOT)),
            text.count("\n", 0, match.start(2)) + 1,
            match[1] or "",
            *match.group(2, 3),
        )
        for match in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in read_blocks(page)]


def read_commands(text: str) -> Iterator[list[str]]:
    """The commands of shell lines, as lists of words."""
    for line in text.replace("\\\n", " ").splitlines():
        command: list[str] = []
        for word in [*shlex.split(line, comments=True), ";"]:
            if word in ("|", "&&", ";"):
                yield command
                command = []
            else:
                command.append(word)


def test_every_block_is_tested_or_says_why_not() -> None:
    assert {block.language for block in BLOCKS} <= {"sh", "python", "text"}
    for block in BLOCKS:
        if block.language != "text":
            assert re.fullmatch(r"|slow|not run: .{10,}", block.mark), block
    for page in PAGES:  # an indented block would not be found
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
        assert not re.search(r"\n\n(    |\t)(?!\s*[-*])", text), page


# Running


@pytest.fixture
def run_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a block in tmp_path as a user would who has installed mt, beside its scripts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MT_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",
    }

    def run(block: Block) -> None:
        if block.language == "python":
            exec(compile(block.text, f"{block.page}:{block.line}", "exec"), {})
            return
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{block.page}:{block.line}\n{done.stdout}"

    return run


def pages_with(mark: str) -> list[str]:
    """The pages that have a block to run with this mark."""
    languages = ("sh", "python")
    pages = [block.page for block in BLOCKS if block.mark == mark and block.language in languages]
    return sorted(set(pages))


def run_page(page: str, marks: tuple[str, ...], run_block: Any) -> None:
    """Run the blocks of a page in order: later ones use what earlier ones have written."""
    for block in BLOCKS:
        if block.page == page and block.mark in marks and block.language != "text":
            run_block(block)


@pytest.mark.parametrize(
    "page",
    [
        page if page in QUICK_PAGES else pytest.param(page, marks=pytest.mark.slow)
        for page in pages_with("")
    ],
)
def test_the_commands_of_a_page_run(page: str, run_block: Any) -> None:
    run_page(page, ("",), run_block)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", pages_with("slow"))
def test_the_slow_commands_of_a_page_run(page: str, run_block: Any) -> None:
    if page == "docs/export.md":
        for module in ("ctranslate2", "transformers", "onnx", "onnxscript", "onnxruntime"):
            pytest.importorskip(module)
    run_page(page, ("", "slow"), run_block)


def test_the_bundled_model_answers_as_the_page_shows(everyday: Translator) -> None:
    _, _, table = (ROOT / "docs" / "translation.md").read_text("utf-8").partition("| typed | ")
    rows = re.findall(r"^\| (?!-)(.+) \| (.+) \|$", table.partition("\n\n")[0], re.M)
    assert len(rows) >= 5
    typed, answers = zip(*rows, strict=True)
    results = everyday.translate(typed, split=True)
    assert [result.text for result in results] == list(answers)


# Scores


def read_results(name: str) -> Any:
    return json.loads((ROOT / "results" / name).read_text("utf-8"))


def score_of(run: dict[str, Any], metric: str) -> str:
    (value,) = (score["value"] for score in run["scores"] if score["name"] == metric)
    return f"{value:.2f}"


TEST_SETS = {  # as README.md and the card begin a row: as results/everyday.json names the test set
    "Tatoeba Challenge": "tatoeba/test_v2020-07-28",
    "newstest2014": "news/newstest2014",
    "Multi30k": "multi30k/test_2016_flickr",
    "the phrasebook's test split": "phrasebook, grammar",
    "the phrasebook's themes": "phrasebook, themes",
    **{f"its {name}": f"phrasebook, {name}" for name in (
        "themes", "vocabulary", "situations", "expressions", "entities"
    )},
}  # fmt: skip


@pytest.mark.parametrize(("page", "count"), [("README.md", 4), ("mt/everyday/README.md", 9)])
def test_the_bundled_models_scores_are_those_of_the_results(page: str, count: int) -> None:
    _, _, table = (ROOT / page).read_text("utf-8").partition("| chrF, beam 4 |\n")
    rows = re.findall(r"^\| ([^-].*) \|$", table.partition("\n\n")[0], re.M)
    assert len(rows) == count
    tests = read_results("everyday.json")["tests"]
    for row in rows:
        name, *cells = row.split(" | ")
        (known,) = (tests[key] for start, key in TEST_SETS.items() if name.startswith(start))
        greedy, beam = known["runs"]
        assert (greedy["beam_size"], beam["beam_size"]) == (1, 4)
        expected = [score_of(greedy, "sacreBLEU"), score_of(beam, "sacreBLEU")]
        assert cells[-3:] == [*expected, score_of(beam, "chrF")], name
        if len(cells) == 4:  # the card has a column of their numbers
            assert cells[0] == f"{known['sentences']:,}", name


def test_the_scores_are_those_of_the_model_that_is_bundled() -> None:
    report = read_results("everyday.json")
    digests = {report["model_sha256"], *(test["model_sha256"] for test in report["tests"].values())}
    assert digests == {checkpoint.digest(checkpoint.BUNDLED_MODEL)}


def test_the_quick_starts_time_and_score_are_those_of_the_results() -> None:
    report = read_results("quickstart.json")
    (beam,) = (run for run in report["runs"] if run["beam_size"] == 4)
    minutes, seconds = divmod(report["training_seconds"], 60)
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    score = f"{score_of(beam, 'sacreBLEU')} sacreBLEU with beam 4"
    assert f"{score} after {minutes}:{seconds:02} minutes of training" in text
    _, _, rest = (ROOT / "docs" / "training.md").read_text("utf-8").partition("<!-- quick start: ")
    part = rest.partition("<!-- quick start: end -->")[0]
    assert f"This training took {minutes}:{seconds:02} minutes" in part
    row = "sacreBLEU".ljust(30)
    for run in report["runs"]:
        (score,) = (score for score in run["scores"] if score["name"] == "sacreBLEU")
        row += f"{score['value']:.2f} ± {score['interval']:.2f}".rjust(14)
    assert row in part


# Settings and options


def first_choice(override: Any) -> str:
    """An override without its sweep: the first of the values."""
    if not override.is_sweep_override():
        return str(override.input_line)
    value = override.value()
    if isinstance(value, Glob):
        names = sorted(path.stem for path in (ROOT / "conf" / override.key_or_group).glob("*.yaml"))
        return f"{override.key_or_group}={value.filter(names)[0]}"
    return f"{override.key_or_group}={next(override.sweep_string_iterator())}"


def check_settings(config: str, arguments: list[str]) -> None:
    """Compose the configuration as Hydra does; an unknown or misspelt setting raises."""
    settings = [word for word in arguments if word not in ("-m", "--multirun")]
    overrides = OverridesParser.create().parse_overrides(settings)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        compose(config, [first_choice(override) for override in overrides])


class Parsed(Exception):
    """The command line of a program was accepted."""


def check_options(program: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a program of argparse and stop it once it has parsed its command line."""
    parse_args = argparse.ArgumentParser.parse_args

    def parse_and_stop(parser: argparse.ArgumentParser, args: Any = None, _: Any = None) -> None:
        parse_args(parser, args)
        raise Parsed

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_stop)
        patch.setattr(sys, "argv", [program, *arguments])
        patch.syspath_prepend(str(ROOT / "scripts"))
        patch.syspath_prepend(str(ROOT / "scripts" / "benchmarks"))
        patch.syspath_prepend(str(ROOT / "scripts" / "bundled_model"))
        package = (ROOT / Path(*program.split("."))).is_dir()
        start = runpy.run_module if program.startswith("mt.") else runpy.run_path
        name = str(ROOT / program) if start is runpy.run_path else program
        with pytest.raises(Parsed):
            start(f"{name}.__main__" if package else name, run_name="__main__")


def check_command(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Check what a command names: programs, settings, options, make's targets, pip's extras."""
    words = [word for word in command if word not in ("…", "--help")]
    if not words:
        return
    if "-m" in words and words[words.index("-m") + 1].startswith("mt."):
        start = words.index("-m") + 1
        program, arguments = words[start], words[start + 1 :]
    elif words[0] == "python":
        program, arguments = words[1], words[2:]
        assert (ROOT / program).is_file(), program
    elif words[0] == "scripts/reproduce.sh":
        settings = words[4:] if words[2] == "--limit" else words[2:]
        check_settings("train", [f"experiment=wmt14_{words[1]}", *settings])
        return
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.M), words
        return
    elif words[:2] == ["pip", "install"]:
        for extra in re.findall(r"\[(\w+)\]", words[-1]):
            assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.M), extra
        return
    else:
        return
    if program in HYDRA:
        check_settings(HYDRA[program], arguments)
    elif "…" not in command and arguments:
        check_options(program, arguments, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_setting_and_option_of_a_page_exists(
    page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [block.text for block in read_blocks(page) if block.language == "sh"]
    prose = FENCE.sub("", page.read_text("utf-8"))
    texts += [span.replace("\n", " ") for span in INLINE.findall(prose)]
    commands = [command for text in texts for command in read_commands(text)]
    for command in commands:
        try:
            check_command(command, monkeypatch)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{page.name}: {shlex.join(command)}: {error}") from error


@pytest.mark.parametrize(
    "command",
    [
        "python -m mt.train experiment=quickstart trainer.max_step=3",
        "python -m mt.train -m experiment=quickstart 'variation=glob(C_M*)'",
        "torchrun --nnodes=2 … -m mt.train trainer.device=4",
        "python -m mt.evaluate model=latest",
        "python -m mt.translate --beam 4 --inputs news.en",
        "python -m mt.export --to tensorflow everyday OUT",
        "python scripts/prepare_data.py experiment=wmt14",
        "python scripts/benchmark_everything.py",
        "scripts/reproduce.sh base trainer.device=8",
        "pip install -e '.[plots]'",
        "make everything",
    ],
)
def test_a_setting_or_option_that_does_not_exist_shows(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    [words, *_] = read_commands(command)
    with pytest.raises((Exception, SystemExit)):
        check_command(words, monkeypatch)


# Links and length


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as MkDocs and code hosts make them."""
    prose = FENCE.sub("", page.read_text("utf-8"))
    headings = re.findall(r"^#+ (.*)$", prose, re.M)
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in headings}


def links(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text("utf-8"))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.is_file(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    for quoted, test in FILE.findall(page.read_text("utf-8")):
        assert (ROOT / (quoted or test)).exists(), quoted or test


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 170


def test_the_pages_link_to_every_result() -> None:
    linked = {(page.parent / link).resolve() for page in DOCS for link in links(page)}
    results = {path for path in (ROOT / "results").iterdir() if path.suffix in (".json", ".png")}
    assert results
    assert results <= linked


def test_the_architecture_page_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    for path in (ROOT / "mt").rglob("*.py"):
        if path.name != "__init__.py" and "phrasebook" not in path.parts:
            assert f"`{path.name}`" in text, path.relative_to(ROOT)


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > len(DOCS)
    for page in pages:
        assert not re.search(
            r"<(script|link|img|iframe)\b[^>]*\b(src|href)=.?(https?:)?//", page.read_text("utf-8")
        ), page
