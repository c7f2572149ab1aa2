"""Markup: tags stay, text is translated, and nothing makes it fail."""

import random
import time

import pytest

from mt.serving.markup import Markup


def shout(document: str, *ignored_tags: str) -> str:
    """The document with its text in capitals."""
    markup = Markup(document, ignored_tags)
    return markup.render([text.upper() for text in markup.texts])


@pytest.mark.parametrize(
    ("document", "rendered"),
    [
        ("", ""),
        ("plain text", "PLAIN TEXT"),
        ("<p>One</p>\n<P class='a'>two </P >", "<p>ONE</p>\n<P class='a'>TWO </P >"),
        ("<ul>\n <li> One </li><br/>Two\n</ul>", "<ul>\n <li> ONE </li><br/>TWO\n</ul>"),
        ("I <b>like</b> it.", "I <b>LIKE</b> IT."),
        ("<b>Bold</b> <i>and</i>", "<b>BOLD</b> <i>AND</i>"),
        ("a &amp; b &lt;c&gt; &eacute;&#33;", "A &amp; B &lt;C&gt; É!"),
        ('<a title="x > y" href=z>Hi</a>', '<a title="x > y" href=z>HI</a>'),
        ("<!-- keep --><?php keep ?><!DOCTYPE html>go", "<!-- keep --><?php keep ?>"
         "<!DOCTYPE html>GO"),
        ("<script>if (a<b) keep('x')</script><style>p{}</style>go",
         "<script>if (a<b) keep('x')</script><style>p{}</style>GO"),
        ("<pre>keep <b>it</b></pre><code>keep</code> go", "<pre>keep <b>it</b></pre>"
         "<code>keep</code> GO"),
        ("<div translate=no>keep <div>it</div> all</div>go",
         "<div translate=no>keep <div>it</div> all</div>GO"),
        ('<p class="x notranslate">keep</p>go', '<p class="x notranslate">keep</p>GO'),
        ("<![CDATA[keep]]>go", "<![CDATA[keep]]>GO"),
        ("12 + 3 <td>•</td>", "12 + 3 <td>•</td>"),
    ],
)  # fmt: skip
def test_text_is_translated_and_the_rest_stays(document: str, rendered: str) -> None:
    assert shout(document) == rendered


@pytest.mark.parametrize(
    ("document", "rendered"),
    [
        ("a < b", "A &lt; B"),
        ("<a href='x", "&lt;A HREF='X"),
        ("<p>One <b>two</p><p>three", "<p>ONE <b>TWO</p><p>THREE"),
        ("</b></p>one</i>", "</b></p>ONE</i>"),
        ("<script>never closed", "<script>never closed"),
        ("one<!-- never closed", "ONE<!-- never closed"),
        ("<pre>never closed <b>x", "<pre>never closed <b>x"),
        ("<>&;&#xffffffff;", "&lt;&gt;&amp;;\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_broken_markup_is_no_error(document: str, rendered: str) -> None:
    assert shout(document) == rendered.replace("&lt;&gt;&amp;;\N{REPLACEMENT CHARACTER}", document)


def test_tags_of_the_caller_are_left_alone() -> None:
    assert shout("<X>keep</X><y>go</y>", "x") == "<X>keep</X><y>GO</y>"


SENTENCE = "<p> I like <b>the old house</b> very much. </p>"


def test_a_sentence_with_an_inline_tag_is_translated_as_a_whole() -> None:
    markup = Markup(SENTENCE)
    whole, *parts = markup.texts
    assert whole == "I like the old house very much."
    assert parts == ["I like", "the old house", "very much."]
    german = ["Ich mag das alte Haus sehr.", "Ich mag", "Das alte Haus.", "Sehr."]
    assert markup.render(german) == "<p> Ich mag <b>das alte Haus</b> sehr. </p>"


@pytest.mark.parametrize(
    "whole",
    [
        "Ich mag altes Gemäuer.",  # the marked words are not there
        "das Haus und das Haus",  # twice
        "Baumdas Hauses",  # only inside other words
        "",
    ],
)
def test_its_parts_are_translated_where_the_marked_words_are_not_found(whole: str) -> None:
    german = [whole, "Ich mag.", "das Haus.", "Sehr."]
    assert Markup(SENTENCE).render(german) == "<p> Ich mag <b>das Haus</b> Sehr. </p>"


def test_any_input_keeps_its_tags_and_ends_soon() -> None:
    chance = random.Random(0)
    bits = ["<", ">", "</", "<b>", "</b>", "<p ", "='", '"', "&amp;", "&#", "<!--", "-->", "word ",
            "<script", "/>", "<pre>", "</pre>", "<br>", "\n", "translate=no",
            "<![CDATA["]  # fmt: skip
    for _ in range(300):
        document = "".join(chance.choices(bits, k=chance.randint(1, 40)))
        assert "".join(item.raw for item in Markup(document)._items) == document
        shout(document)
    begin = time.monotonic()
    for bit in (*bits, "<a ", "<a '", "<b>x</b> ", "class= ", "<a translate=no "):
        shout(bit * (20_000 // len(bit)))
    assert time.monotonic() - begin < 5
