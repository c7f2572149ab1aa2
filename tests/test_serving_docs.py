"""docs/serving.md: every curl line and client is run, its answer compared; its tables are complete.

In a shown answer … stands for anything; numbers may differ in their fourth digit, as they do
between processors. A bundled model that is trained anew may make other answers necessary.
"""

import argparse
import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import fields
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from live_server import running

from mt import serve
from mt.inference.translator import Translator
from mt.serving import native, native_documents
from mt.serving.app import create_app
from mt.serving.limits import ApiKeys, Limits
from mt.serving.metrics import Metrics

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "serving.md").read_text("utf-8")
BLOCK = re.compile(
    r"^<!-- not run: tests/test_serving_docs.py runs it against a live server( with keys)? -->\n"
    r"```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?",
    re.M | re.S,
)
JSON = json.JSONDecoder()


class Block(NamedTuple):
    """Lines of the page that are run, and the answers that it shows, if any."""

    with_keys: bool
    language: str
    text: str
    shown: str


BLOCKS = [Block(bool(m[1]), m[2], m[3], m[4] or "") for m in BLOCK.finditer(TEXT)]


def make_app(translator: Translator, keys: list[str]) -> FastAPI:
    limits, metrics = Limits(), Metrics()
    engine = serve.make_engine(translator, limits, metrics)
    return create_app(
        engine, limits, ApiKeys(keys), metrics=metrics, draw=lambda text, prefix: ("", "")
    )


@pytest.fixture(scope="module")
def ask(everyday: Translator) -> Iterator[Callable[[Block], str]]:
    """Run a block against a live server; returns what it prints."""
    open_app, closed_app = make_app(everyday, []), make_app(everyday, ["my-key"])
    with running(open_app) as open_one, running(closed_app) as closed_one:

        def run(block: Block) -> str:
            server = closed_one if block.with_keys else open_one
            text = block.text.replace("http://localhost:8000", "localhost:8000")
            text = text.replace("localhost:8000", server.address)
            if block.language == "sh":
                return run_shell(text)
            with contextlib.redirect_stdout(StringIO()) as printed:
                exec(compile(text, "docs/serving.md", "exec"), {})
            return printed.getvalue()

        yield run


def run_shell(text: str) -> str:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    silent = re.sub(r"^curl ", "curl --silent --show-error --max-time 60 ", text, flags=re.M)
    command = ["bash", "-euo", "pipefail", "-c", silent]
    with TemporaryDirectory() as folder:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_answers(text: str) -> list[Any]:
    """The JSON values of a text, one after the other; … is the string "…"."""
    text, values = re.sub(r'(?<!")…', '"…"', text).strip(), []
    while text:
        value, end = JSON.raw_decode(text)
        values.append(value)
        text = text[end:].lstrip()
    return values


def agree(shown: Any, answer: Any) -> bool:
    if shown == "…":
        return True
    if isinstance(shown, dict) and isinstance(answer, dict):
        return shown.keys() == answer.keys() and all(agree(shown[k], answer[k]) for k in shown)
    if isinstance(shown, list) and isinstance(answer, list):
        return len(shown) == len(answer) and all(map(agree, shown, answer))
    if isinstance(shown, float) and isinstance(answer, float):
        return shown == pytest.approx(answer, abs=1e-3)
    return type(shown) is type(answer) and shown == answer


def read_events(text: str) -> list[tuple[str, Any]]:
    events = re.findall(r"^event: (\w+)\ndata: (.*)\n(?:\n|\Z)", text, re.M)
    return [(name, json.loads(data)) for name, data in events]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.text.split("\n")[0][:60])
def test_the_lines_of_the_page_are_answered_as_it_shows(
    block: Block, ask: Callable[[Block], str]
) -> None:
    answer = ask(block)
    assert answer
    message = f"{block.text}\nis answered with\n{answer}"
    if block.language == "python" or block.shown[:1] not in ("", "{", "[", "e"):  # not JSON
        assert answer.strip() == block.shown.strip(), message
    elif block.shown.startswith("event: "):  # how many partial results there are is chance
        shown, events = read_events(block.shown), read_events(answer)
        assert {name for name, _ in events[:-1]} <= {"partial"}, message
        assert all(data.keys() == shown[0][1].keys() for _, data in events[:-1]), message
        assert agree([*shown[-1]], [*events[-1]]), message
    elif block.shown:
        assert agree(read_answers(block.shown), read_answers(answer)), message


def test_the_page_has_a_line_for_each_interface() -> None:
    lines = "".join(block.text for block in BLOCKS)
    for path in ("/v1/translate", "/v2/translate", "8000/translate", "/detect", "/health/ready"):
        assert path in lines
    assert {block.language for block in BLOCKS} == {"sh", "python"}
    shown = "".join(re.findall(r"^```sh\n(.*?)^```$", TEXT, re.M | re.S))
    assert shown.count("curl ") == lines.count("curl ")


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        ('{"a": 1}', '{"a": 1, "b": 2}'),
        ('{"a": "x"}', '{"a": "y"}'),
        ('["x", …]', '["x"]'),
        ("[0.5]", "[0.51]"),
        ("[1]", "[true]"),
        ('{"a": 1}', '{"a": 1}{"a": 1}'),
    ],
)
def test_another_answer_shows(shown: str, answer: str) -> None:
    assert agree(read_answers(shown), read_answers(shown))
    assert not agree(read_answers(shown), read_answers(answer))


# Tables


def rows(heading: str) -> list[list[str]]:
    """The cells of all table rows below the first column that is called so."""
    table_rows = []
    for table in re.findall(r"(?:^\|.*\n)+", TEXT, re.M):
        lines = [re.split(r" \| ", line.strip("| \n")) for line in table.splitlines()]
        if lines[0][0] == heading:
            table_rows += lines[2:]
    assert table_rows
    return table_rows


def shown_default(value: Any) -> str:
    """A default as the page's tables have it."""
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def test_the_page_has_every_option_and_limit() -> None:
    parser = serve.make_parser()
    actions = {
        a.option_strings[-1]: a for a in parser._actions if a.dest not in ("help", "version")
    }
    table = {cells[0].strip("`"): cells[1].strip("`") for cells in rows("option")}
    assert list(table) == list(actions)
    limits = {f"--limit-{x.name.replace('_', '-')}": x.default for x in fields(Limits)}
    for flag, action in actions.items():
        default = limits.get(flag, action.default)
        if flag in limits:
            assert table[flag] == shown_default(default), flag
        elif default:
            assert table[flag] == str(default), flag
        assert action.help is not argparse.SUPPRESS


def test_the_page_has_every_field_of_v1() -> None:
    table = {cells[0].strip("`"): cells[1] for cells in rows("field")}
    known = native.TranslateBody.model_fields
    assert set(table) == set(known)
    for name, field in known.items():
        default = "required" if field.is_required() else f"`{json.dumps(field.default)}`"
        assert table[name].removeprefix("the model's, else ") == default, name


def test_the_page_has_every_field_of_a_document() -> None:
    table = {cells[0].strip("`") for cells in rows("form field")}
    assert table == set(native_documents.DocumentBody.model_fields)


def test_the_page_has_every_path(ask: Callable[[Block], str]) -> None:
    table = {cells[0].strip("`"): cells[1].split(", ") for cells in rows("path")}
    shown = Block(False, "sh", "curl http://localhost:8000/openapi.json", "")
    paths = set(json.loads(ask(shown))["paths"])
    assert set(table) == paths | {"/", "/openapi.json"}
    for path, methods in table.items():
        for method in methods:
            asked = shown._replace(
                text=f"curl -X {method} -o /dev/null -w '%{{http_code}}' http://localhost:8000{path}\n"
            )
            wrong = ("405",) if "{" in path else ("404", "405")  # there is no such document
            assert ask(asked) not in wrong, (path, method)


def test_the_page_has_every_error() -> None:
    shown = {code for cells in rows("status") for code in re.findall(r"`(\w+)`", cells[1])}
    sources = "".join(p.read_text("utf-8") for p in (ROOT / "mt" / "serving").glob("*.py"))
    raised = re.findall(r'RequestError\(\s*\d+,\s*"(\w+)"', sources)
    assert len(set(raised)) > 5
    assert shown == {*raised, "unauthorized"}


def test_the_page_has_every_metric() -> None:
    families = Metrics().text().decode()
    known = set(re.findall(r"^# TYPE (\w+) ", families, re.M))
    known = {name for name in known if name.startswith("mt_") and not name.endswith("_created")}
    shown = {name for cells in rows("metric") for name in re.findall(r"`(\w+)`", cells[0])}
    assert {name for name in shown if name.startswith("mt_")} == known
    others = {name for name in shown if not name.startswith("mt_")}
    assert others <= set(re.findall(r"^# TYPE (\w+) ", families, re.M))
