"""HTML: which texts are segments, and that everything else stays."""

import random
import re
from collections import Counter

import pytest
from text_document_checks import check, check_hostile, fuzz, moved, shouted, texts

from mt.documents import formats
from mt.documents.document import DocumentError, Segment, Tag, TagKind
from mt.documents.html import TOKEN, HtmlDocument

BITS = ["<", ">", "</", "<b>", "</b>", "<p ", "='", '"', "&amp;", "&#", "<!--", "-->", "word ",
        "<script", "/>", "<pre>", "</pre>", "<br>", "\n", "translate=no", "<![CDATA[", "<code>",
        "</code>", "<i class=x>", "</i>", " ", "<img alt='A b' src=x>", "\0", "é", "</p>", "&nbsp;",
        ".", "title='x y'", "<?php "]  # fmt: skip
ENTRIES = [
    "<p>One <b>two</b> three.</p>\n", "<ul><li>a &lt; b <code>x</code></li></ul>",
    '<img alt="A house" src="x"> on <a href="y">the <i>hill</i></a><br>\n', "<h1> Title </h1>\r\n",
]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "rendered"),
    [
        ("", ""),
        ("plain text", "PLAIN TEXT"),
        ("<p>One</p>\n<P class='a'>two </P >", "<p>ONE</p>\n<P class='a'>TWO </P >"),
        ("<ul>\n <li> One </li><hr/>Two\n</ul>", "<ul>\n <li> ONE </li><hr/>TWO\n</ul>"),
        ("I <b>like</b> it.", "I <b>LIKE</b> IT."),
        ("<b>Bold</b> <i>and</i>", "<b>BOLD</b> <i>AND</i>"),
        ("a &amp; b &lt;c&gt; &eacute;&#33;", "A &amp; B &lt;C&gt; É!"),
        ('<a title="x > y" href=z>Hi</a>', '<a title="X &gt; Y" href=z>HI</a>'),
        ("<!-- keep --><?php keep('>') ?><!DOCTYPE html>go", "<!-- keep --><?php keep('>') ?>"
         "<!DOCTYPE html>GO"),
        ("<!DOCTYPE a [<!ENTITY b 'keep'>]><p>go", "<!DOCTYPE a [<!ENTITY b 'keep'>]><p>GO"),
        ("<script>if (a<b) keep('x')</script ><style>p{}</style>go",
         "<script>if (a<b) keep('x')</script ><style>p{}</style>GO"),
        ("<pre>keep <b>it</b></pre><p><code>keep</code> go", "<pre>keep <b>it</b></pre>"
         "<p><code>keep</code> GO"),
        ("<div translate=no>keep <div>it</div> all</div>go",
         "<div translate=no>keep <div>it</div> all</div>GO"),
        ('<p class="x notranslate">keep</p>go', '<p class="x notranslate">keep</p>GO'),
        ("the <span translate='no'>keep</span> one", "THE <span translate='no'>keep</span> ONE"),
        ("<img translate=no alt='keep'>go", "<img translate=no alt='keep'>GO"),
        ("<![CDATA[keep]]>go", "<![CDATA[keep]]>GO"),
        ("12 + 3 <td>•</td>", "12 + 3 <td>•</td>"),
        ("<title>a</title><meta name=Description content='b'><meta name=x content=c>",
         "<title>A</title><meta name=Description content='B'><meta name=x content=c>"),
        ("<input type=submit value=Send><input value=keep placeholder='a \"b\"'>",
         "<input type=submit value=\"SEND\"><input value=keep placeholder='A \"B\"'>"),
        ("<select><optgroup label='a b'><option label=keep>c</select><track label=d>",
         "<select><optgroup label='A B'><option label=keep>C</select><track label=\"D\">"),
        ("on the 1<sup>st</sup> of", "ON THE 1ST OF"),
        ("on the <b>1</b><sup class='o'>st </sup>of", "ON THE <b>1</b>ST OF"),
        ("1<sup translate=no>st</sup> of", "1<sup translate=no>st</sup> OF"),
        ("the x<sup>st</sup> of", "THE X<sup>ST</sup> OF"),
        ("<!-->a<!--->b<!-- keep --!>c", "<!-->A<!--->B<!-- keep --!>C"),
        ("<textarea title='a'>keep <b></textarea>", "<textarea title='A'>keep <b></textarea>"),
        ("<a aria-label='see' href=x>it</a>", "<a aria-label='SEE' href=x>IT</a>"),
        (f"<img src='data:{'x' * 5000}'>go", f"<img src='data:{'x' * 5000}'>GO"),
        ("<p>&nbsp;<b> a</b> b <a href=x></a></p>", "<p>&nbsp;<b>A</b> B <a href=x></a></p>"),
        ("Dear <!-- keep --> friend", "DEAR <!-- keep --> FRIEND"),
        ("See [<code>a</code>], <kbd>b</kbd>. It", "SEE [<code>a</code>], <kbd>b</kbd>. IT"),
        ("<p translate=no>keep<p>go", "<p translate=no>keep<p>GO"),
        ("<ul><li translate=no>keep <b>it<li>go</ul>",
         "<ul><li translate=no>keep <b>it<li>GO</ul>"),
        ("<ul><li translate=no>keep<ul><li>it<li>too</ul>all</ul>go",
         "<ul><li translate=no>keep<ul><li>it<li>too</ul>all</ul>GO"),
        ("<tr><td translate=no>keep<td>go</tr>", "<tr><td translate=no>keep<td>GO</tr>"),
        ("<table><tr translate=no><td>keep<td>it<tr><td>go</table>",
         "<table><tr translate=no><td>keep<td>it<tr><td>GO</table>"),
        ("<table><thead translate=no><tr><td>keep<tbody><tr><td>go</table>",
         "<table><thead translate=no><tr><td>keep<tbody><tr><td>GO</table>"),
        ("<ul><li translate=no><p>keep<li>go</ul>", "<ul><li translate=no><p>keep<li>GO</ul>"),
        ("<div><p translate=no>keep</div>go", "<div><p translate=no>keep</div>GO"),
        ("<script src='x'/>keep</script>go", "<script src='x'/>keep</script>GO"),
        ("<?xml version='1.0'?><script src='x'/>go", "<?xml version='1.0'?><script src='x'/>GO"),
    ],
)  # fmt: skip
def test_text_is_translated_and_the_rest_stays(page: str, rendered: str) -> None:
    document = HtmlDocument(page)
    assert document.render_text(document.segments) == page
    assert shouted(document) == rendered


def test_in_xml_every_element_has_an_end_tag() -> None:
    page = "<p translate='no'>keep <div>it</div> all</p><li translate='no'><li>keep</li>it</li>go"
    assert shouted(HtmlDocument(page, is_xml=True)) == page.replace("go", "GO")


def test_in_xml_any_element_may_be_empty() -> None:
    page = "<head><script src='x'/><title>go</title></head><textarea/>on"
    assert shouted(HtmlDocument(page, is_xml=True)) == page.replace("go", "GO").replace("on", "ON")
    document = formats.read_document("page.xhtml", page.encode())
    assert [segment.text for segment in document.segments] == ["go", "on"]


@pytest.mark.parametrize(
    ("page", "rendered"),
    [
        ("a < b", "A &lt; B"),
        ("a <b and c", "A &lt;B AND C"),
        ("<a href='x", "&lt;A HREF='X"),
        ("<p>One <b>two</p><p>three", "<p>ONE <b>TWO</p><p>THREE"),
        ("</b></p>one</i>", "</b></p>ONE</i>"),
        ("<b><i>x</b></i> y", "<b><i>X</b></i> Y"),
        ("<script>never closed", "<script>never closed"),
        ("one<!-- never closed", "ONE<!-- never closed"),
        ("<pre>never closed <b>x", "<pre>never closed <b>x"),
        ("x &#xffffffff;", "X \N{REPLACEMENT CHARACTER}"),
        (f"x &#{'9' * 9999};", "X \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_broken_markup_is_no_error(page: str, rendered: str) -> None:
    assert shouted(HtmlDocument(page)) == rendered


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("a<br>b<br>\n<br>c", ["a b", "c"]),
        (
            "Monday: closed<br>Tuesday:<br/>\n9 to 5<br>or later",
            ["Monday: closed", "Tuesday:", "9 to 5 or later"],
        ),
        ("<p><b>Name: Anna<br>Age: 30</b><br>", ["Name: Anna", "Age: 30"]),
        ("<i>x <b>One<br>Two</b> y</i>", ["x One Two y"]),
        ("<p><b>Hello<br></b>World", ["Hello", "World"]),
        ("<p><i><b>Hello<br></b> </i><br>World", ["Hello", "World"]),
        ("<p><b>Hello<br></b>world", ["Hello world"]),
        ('The end<sup title="See the note">1</sup> is', ["See the note", "The end is"]),
        ('An end<sup title="Not this" translate="no">1</sup> is', ["An end is"]),
        (
            "The tax<sup>2</sup> is <sup><a href='#3'>[3]</a></sup>high<SUP>*</SUP>.",
            ["The tax is high."],
        ),
        ("The 1<sup>st</sup> x<sup>y</sup> of CO<sub>2</sub>", ["The 1st x of CO2"]),
        ("a<sup>never closed 2", ["anever closed 2"]),
        ("<p>The <em>old</em>\n  house</p>", ["The old house"]),
        ("<p>Use <svg>x</svg>, then go.</p>", ["Use, then go."]),
        ("<p><code>a</code> is <b><var>b</var></b>.<p><kbd>c</kbd>", ["H5 is M6."]),
        ("H5 <code>a</code> <code></code>7", ["H5 M6 7"]),
        ("<code>a</code>7 is", ["H5 7 is"]),
        ("<% if a < b %> Bye <%= name %>! <% end", ["Bye H5!"]),
        ("Bye <?= $name ?>!", ["Bye H5!"]),
        ("The <span translate=no>Acme</span> firm", ["The H5 firm"]),
        ('<html lang="en-GB"><p lang=fr>Oui.</p><p lang=en>Yes.</p>', ["Yes."]),
        ('<html lang=en>The <i lang="la">homo</i> is', ["The H5 is"]),
        ("<p lang=fr>Oui.</p>", ["Oui."]),  # nobody knows the language of the page
        ("<td>a</td><td>b</td>", ["a", "b"]),
        ("<a>Home</a><a>News</a>\n<a>About us</a>", ["Home", "News", "About us"]),
        ("see <a>this</a> or <a>that</a>", ["see this or that"]),
        ("see <img alt='a map'> there", ["a map", "see there"]),
    ],
)
def test_a_segment_reads_as_a_person_would(page: str, expected: list[str]) -> None:
    assert texts(HtmlDocument(page)) == expected


def test_tags_at_the_ends_do_not_belong_to_the_segment() -> None:
    [segment] = HtmlDocument("<p><b><i>Hello</i> you</b><br></p>").segments
    tags = (Tag(TagKind.OPEN, 0, 0), Tag(TagKind.CLOSE, 0, 5))
    assert segment == Segment("Hello you", tags)


def test_moved_tags_keep_the_blanks_around_them() -> None:
    document = HtmlDocument("<p>You can use <img src=x> here.</p>")
    [segment] = document.segments
    [tag] = segment.tags
    german = Segment("Hier kann man benutzen.", (tag._replace(position=len("Hier kann man")),))
    assert document.render_text([german]) == "<p>Hier kann man <img src=x> benutzen.</p>"
    at_the_end = Segment("Benutze.", (tag._replace(position=len("Benutze")),))
    assert document.render_text([at_the_end]) == "<p>Benutze <img src=x>.</p>"


def test_tags_of_the_caller_are_left_alone() -> None:
    assert shouted(HtmlDocument("a <X>keep</X> b", ["x"])) == "A <X>keep</X> B"


@pytest.mark.parametrize(
    ("head", "encoding", "rendered"),
    [
        ("", "utf-8", "grün 汉"),
        ("<meta charset='ISO-8859-1'>", "cp1252", "grün &#27721;"),
        ('<meta http-equiv=x content="text/html; charset=gb2312">', "gb2312", "grün 汉"),
        ("<?xml version='1.0' encoding='koi8-r'?>", "koi8-r", "gr&#252;n &#27721;"),
        ("<meta charset=hex>", "utf-8", "grün 汉"),
        ("<meta charset=no-such>", "utf-8", "grün 汉"),
        ("\ufeff", "utf-16-le", "grün 汉"),
    ],
)
def test_a_page_keeps_its_encoding(head: str, encoding: str, rendered: str) -> None:
    data = f"{head}<p>green</p>".encode(encoding)
    document = HtmlDocument.from_bytes(data)
    assert document.render(document.segments) == data
    changed = document.render([Segment("grün 汉")])
    assert changed.decode(encoding) == f"{head}<p>{rendered}</p>"


def test_latin_1_may_have_any_byte() -> None:
    data = b"<meta charset=latin1>" + bytes(range(128, 256)) + b" x"
    document = check(HtmlDocument.from_bytes, data)
    assert document is not None
    changed = document.render([Segment("\x81€\u2009x")])
    assert changed == b"<meta charset=latin1>\x81\x80&#8201;x"
    page = b"<meta charset=latin1>5 \x80, \x93so\x94 \x9d"
    assert texts(HtmlDocument.from_bytes(page)) == ["5 €, “so” \x9d"]


@pytest.mark.parametrize(
    "data", [b"<p>gr\xfcn", b"\xff\xfea", b"<meta charset=gb2312>\xff\xff", b"\xef\xbb\xbf\xff"]
)
def test_another_encoding_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match=r"is not valid .*: save it as UTF-8"):
        HtmlDocument.from_bytes(data)


def test_any_input_keeps_its_bytes() -> None:
    fuzz(HtmlDocument.from_bytes, ENTRIES, BITS)


def test_every_tag_is_kept() -> None:
    chance = random.Random(1)
    for _ in range(300):
        page = "".join(chance.choices([*ENTRIES, *BITS], k=chance.randint(1, 30)))
        document = HtmlDocument(page)
        again = HtmlDocument(shouted(document))
        elsewhere = [moved(segment, chance) for segment in document.segments]
        assert _tags(page) == _tags(shouted(document)) == _tags(document.render_text(elsewhere))
        blank = re.compile(r"\s")  # those beside tags may be others
        before = [blank.sub("", text.upper()) for text in texts(document)]
        after = [blank.sub("", text) for text in texts(again)]
        assert "".join(before) == "".join(after)
        if "<br>" not in page:  # before a capital letter it ends a segment
            assert before == after
            assert [len(s.tags) for s in document.segments] == [len(s.tags) for s in again.segments]


def _tags(page: str) -> Counter[str]:
    return Counter(m["end"] + m["tag"] for m in TOKEN.finditer(page) if m["closed"])


@pytest.mark.parametrize(
    "unit",
    ["<br>A<b>", "<b>A<br>", "<sup>1",
     "<", "<a ", "<a '", '<a b="', ' b="<a "', "<b>x", "<b>x</b> ", "<!--", "<![CDATA[", "<?php ",
     "<!DOCTYPE [", "<script", "<script>", "<code>x", "<pre>", "</b>", "&amp", "&#9", "\0",
     "<p title=x ", "<b><i>x</b>", "<div translate=no>", "<img alt='a", "&nbsp;", "</script ",
     "a", "\n ", "<a" + "a" * 5000, "\x81", "汉"],
)  # fmt: skip
def test_hostile_pages_end_soon(unit: str) -> None:
    page = b"<meta charset=latin1>" + (unit * (100_000 // len(unit))).encode("latin-1", "ignore")
    check_hostile(HtmlDocument.from_bytes, page)
    check_hostile(HtmlDocument.from_bytes, ("<a" + unit * (100_000 // len(unit))).encode())
