"""Markup by the routes: tags stay, text is translated, and nothing makes it fail or holds it up."""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from serving_helpers import StandIn, ask, post

from mt.documents.document import Segment
from mt.documents.html import HtmlDocument
from mt.serving import service
from mt.serving.app import create_app
from mt.serving.limits import Limits

TEXT = {"source": "en", "target": "de", "format": "html"}
WIDE = Limits(body_bytes=2**20, characters=2**20)


def shout(*documents: str) -> list[str]:
    """The documents with their text in capitals."""
    answer = ask(create_app(StandIn(), WIDE), "POST", "/translate", json=TEXT | {"q": documents})
    assert answer.status_code == 200, answer.text
    return answer.json()["translatedText"]


@pytest.mark.parametrize(
    ("document", "rendered"),
    [
        ("plain text", "PLAIN TEXT"),
        ("<p>One</p>\n<P class='a'>two </P >", "<p>ONE</p>\n<P class='a'>TWO </P >"),
        ("<ul>\n <li> One </li><hr/>Two\n</ul>", "<ul>\n <li> ONE </li><hr/>TWO\n</ul>"),
        ("I <b>like</b> it.", "I <b>LIKE</b> IT."),
        ("<b>Bold</b> <i>and</i>", "<b>BOLD</b> <i>AND</i>"),
        ("a &amp; b &lt;c&gt; &eacute;&#33;", "A &amp; B &lt;C&gt; É!"),
        ('<a href=z title="x > y">Hi</a>', '<a href=z title="X &gt; Y">HI</a>'),
        ("<!-- keep --><?php keep ?><!DOCTYPE html>go", "<!-- keep --><?php keep ?>"
         "<!DOCTYPE html>GO"),
        ("<script>if (a<b) keep('x')</script><style>p{}</style>go",
         "<script>if (a<b) keep('x')</script><style>p{}</style>GO"),
        ("<pre>keep <b>it</b></pre> go", "<pre>keep <b>it</b></pre> GO"),
        ("<div translate=no>keep <div>it</div> all</div>go",
         "<div translate=no>keep <div>it</div> all</div>GO"),
        ("<![CDATA[keep]]>go", "<![CDATA[keep]]>GO"),
        ("12 + 3 <td>•</td>", "12 + 3 <td>•</td>"),
        ("a < b", "A &lt; B"),
        ("<p>One <b>two</p><p>three", "<p>ONE <b>TWO</p><p>THREE"),
        ("</b></p>one</i>", "</b></p>ONE</i>"),
        ("<script>never closed", "<script>never closed"),
        ("one<!-- never closed", "ONE<!-- never closed"),
        ("<>&;&#xffffffff;", "<>&;&#xffffffff;"),
        ("go &#" + "9" * 5000, "GO \N{REPLACEMENT CHARACTER}"),
        ('<a href="' + "x" * 5000 + '">go</a>', '<a href="' + "x" * 5000 + '">GO</a>'),
    ],
)  # fmt: skip
def test_text_is_translated_and_the_rest_stays(document: str, rendered: str) -> None:
    assert shout(document) == [rendered]


def test_tags_of_the_caller_are_left_alone() -> None:
    body = {"text": "<X>keep</X><y>go</y>", "tag_handling": "xml", "ignore_tags": "x"}
    answer = post("/v2/translate", json=body | {"source_lang": "EN", "target_lang": "DE"})
    assert answer.json()["translations"][0]["text"] == "<X>keep</X><y>GO</y>"


def test_in_xml_an_element_may_be_empty() -> None:
    body = {"text": "<script/>go", "source_lang": "EN", "target_lang": "DE"}
    for handling, text in (("xml", "<script/>GO"), ("html", "<script/>go")):
        answer = post("/v2/translate", json=body | {"tag_handling": handling})
        assert answer.json()["translations"][0]["text"] == text


def test_a_sentence_with_inline_tags_is_one_text_and_is_aligned() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    document = "<p> I like <b>the old house</b> very much. </p><p>Plain.</p>"
    ask(app, "POST", "/translate", json=TEXT | {"q": document})
    ask(app, "POST", "/translate", json=TEXT | {"q": "<p>Plain.</p>"})
    assert [list(job.texts) for job in stand_in.jobs] == [
        ["I like the old house very much.", "Plain."], ["Plain."]
    ]  # fmt: skip
    assert [job.options.attention for job in stand_in.jobs] == [True, False]
    assert all(job.terms and job.terms.keep for job in stand_in.jobs)


def test_any_input_is_answered() -> None:
    chance = random.Random(0)
    bits = ["<", ">", "</", "<b>", "</b>", "<p ", "='", '"', "&amp;", "&#", "<!--", "-->", "word ",
            "<script", "/>", "<pre>", "</pre>", "<br>", "\n", "translate=no",
            "<![CDATA["]  # fmt: skip
    shout(*("x" + "".join(chance.choices(bits, k=chance.randint(1, 40))) for _ in range(50)))


HUGE = [
    "<b>",
    "<b>x ",
    "<b>x</b> ",
    "<!--",
    "<a '",
    "<a title=x>",
    "<p>x",
    "&#",
    "x<br>",
    "<i",
    "x<",
]


@pytest.mark.parametrize("bit", HUGE)
def test_large_markup_is_soon_done(bit: str) -> None:
    begin = time.monotonic()
    shout(bit * (50_000 // len(bit)) + "<p>The end")
    assert time.monotonic() - begin < 10  # seconds; it takes less than 1 on a machine that is idle


def test_markup_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    class Watched(HtmlDocument):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            threads.add(threading.current_thread())
            super().__init__(*arguments, **settings)

        def render_text(self, translated: Sequence[Segment]) -> str:
            threads.add(threading.current_thread())
            return super().render_text(translated)

    monkeypatch.setattr(service, "HtmlDocument", Watched)
    assert shout("<b>x</b>") == ["<b>X</b>"]
    assert threads
    assert threading.current_thread() not in threads  # in which the event loop runs
