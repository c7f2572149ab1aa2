"""Markdown: which texts are segments, and that everything else stays."""

import random
import re
import sys

import pytest
from text_document_checks import capitals, check_hostile, fuzz, shouted, texts

from mt.documents.document import DocumentError, Segment, Tag, TagKind
from mt.documents.markdown import read_markdown

BITS = ["*", "**", "_", "`", "``", "[", "](x)", "]", "!", "<b>", "</b>", "\\", "word ", "\n",
        "\n\n", "- ", "> ", "# ", "1. ", "| ", "|---|\n", "  \n", "~~", "&amp;", "<!--", "-->",
        "[r]: x\n", "[r]", "```\n", "\t", "    ", "---\n", "\r\n", "\0", "<p>", "é ", "![a b](c)", 
        "<http://x>", ".", "(", ")", "===\n", "[^1]"]  # fmt: skip
ENTRIES = [
    "# A title\n\n", "Some *text* and `code`\nin **two _lines_**.\n\n", "- one\n- [two](x)\n\n",
    "> quoted  \n> lines\n\n", "| a | b |\n|---|---|\n| c | d \\| e |\n\n", "```\ncode\n```\n\n",
    "<p>HTML\n</p>\n\n", "[r]: /url\n\n", "see [r]\n\n",
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("", ""),
        ("text", "TEXT"),
        ("---\ntitle: keep\n---\n# Go #\n", "---\ntitle: keep\n---\n# GO #\n"),
        ("+++\nkeep = 1\n+++\ngo\n", "+++\nkeep = 1\n+++\nGO\n"),
        ("---\ntitle: keep\n...\ngo\n", "---\ntitle: keep\n...\nGO\n"),
        ("---\n\ntitle: keep\n---\ngo\n", "---\n\ntitle: keep\n---\nGO\n"),
        ("---\n\na\n\n---\n\nb\n", "---\n\nA\n\n---\n\nB\n"),
        ("Two\nlines\n===\n", "TWO LINES\n===\n"),
        ("a *b* __c__ ~~d~~ `keep` e", "A *B* __C__ ~~D~~ `keep` E"),
        ("***a** b*", "***A** B*"),
        ("a * b and snake_case", "A * B AND SNAKE_CASE"),
        ("[a *b*](/url \"keep\") and <https://keep.it> or <me@keep.it>",
         "[A *B*](/url \"keep\") AND <https://keep.it> OR <me@keep.it>"),
        ("[a](<x y> 'k')[b](x(y))", "[A](<x y> 'k')[B](x(y))"),
        ("see [it], [it][] and [this][it]\n\n[it]: /url 'keep'\n",
         "SEE [IT][it], [IT][it] AND [THIS][it]\n\n[it]: /url 'keep'\n"),
        ("no [link] here", "NO \\[LINK\\] HERE"),
        ("![a house](img.png) here", "![A HOUSE](img.png) HERE"),
        ("[![a house](img.png)](/url) here", "[![A HOUSE](img.png)](/url) HERE"),
        ("![*a* house](img.png) here", "![*a* house](img.png) HERE"),
        ("![a house][r] here\n\n[r]: x.png", "![A HOUSE][r] HERE\n\n[r]: x.png"),
        ("![r] here, ![r][] there\n\n[r]: x.png", "![r] HERE, ![r][] THERE\n\n[r]: x.png"),
        ("a <b>c</b> <code>keep</code> <img alt='d'>.",
         "A <b>C</b> <code>keep</code> <img alt='D'>."),
        ("a <span translate=no>*keep*</span> b <script>keep()</script>",
         "A <span translate=no>*keep*</span> B <script>keep()</script>"),
        ("a <b translate=no>keep</b>", "A <b translate=no>keep</b>"),
        ("a <iframe title='b'>keep</iframe> c", "A <iframe title='B'>keep</iframe> C"),
        ("The <script> tag loads. Then", "THE <script> TAG LOADS. THEN"),
        ("a <i class=notranslate>b", "A <i class=notranslate>B"),
        ("a <img translate=no alt='keep'> b", "A <img translate=no alt='keep'> B"),
        ("hard  \nbreak\\\nhere\nsoft", "HARD  \nBREAK\\\nHERE SOFT"),
        ("a bear<sup>1</sup> here", "A BEAR<sup>1</sup> HERE"),
        ("the 1<sup>st</sup> x<sup>st</sup>", "THE 1ST X<sup>ST</sup>"),
        ("1<sup translate=no>st</sup> of", "1<sup translate=no>st</sup> OF"),
        ("> a  \n> b\n> c\n", "> A  \n> B C\n"),
        ("> [!NOTE]\n> a\n> b\n", "> [!NOTE]\n> A B\n"),
        ("[!NOTE] a [!TIP]\n", "\\[!NOTE\\] A \\[!TIP\\]\n"),
        ("- [ ] a\n- [x] b\n  c\n\n  d\n", "- [ ] A\n- [x] B C\n\n  D\n"),
        ("1. a\n   1. b\n", "1. A\n   1. B\n"),
        ("```py\nkeep\n```\n\n    keep\n\ngo\n", "```py\nkeep\n```\n\n    keep\n\nGO\n"),
        ("| a | b \\| c |\n|:-:|---|\n| d `keep` | **e** |\n|f|\n",
         "| A | B \\| C |\n|:-:|---|\n| D `keep` | **E** |\n|F|\n"),
        ("> 1. a | 1\n>    -|-\n>    1 | a\n", "> 1. A | 1\n>    -|-\n>    1 | A\n"),
        ("<div align=center>\n<b>a</b> c <img alt='d'>\n</div>\n\ngo",
         "<div align=center>\n<b>A</b> C <img alt='D'>\n</div>\n\nGO"),
        ("- a:\n  <div>b\n  <p>c</div>\n", "- A:\n  <div>B\n  <p>C</div>\n"),
        ("> <p>a</p>\n\n> <p>keep\n> this</p>\n", "> <p>A</p>\n\n> <p>keep\n> this</p>\n"),
        ("<script>\nkeep\n</script>\n\n<!-- keep -->\n",
         "<script>\nkeep\n</script>\n\n<!-- keep -->\n"),
        ("a[^1]\n\n[^1]: Note that b.\n", "A[^1]\n\n[^1]: NOTE THAT B.\n"),
        ("&copy; \\*a\\* &lt;b>", "© \\*A\\* \\<B>"),
        ("a\r\nb\r\n\r\nc\r\n", "A B\r\n\r\nC\r\n"),
        ("***\n---\n", "***\n---\n"),
    ],
)  # fmt: skip
def test_text_is_translated_and_the_rest_stays(source: str, rendered: str) -> None:
    document = read_markdown(source.encode())
    assert document.render(document.segments) == source.encode()
    assert shouted(document) == rendered


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("* a", "\\* a"),
        ("- a", "\\- a"),
        ("1986. a", "1986\\. a"),
        ("# a", "\\# a"),
        ("#a", "#a"),
        ("> a", "\\> a"),
        ("---", "\\---"),
        ("a_b _c_ *d* `e`", "a_b \\_c\\_ \\*d\\* \\`e\\`"),
        ("[a](b) <b> 1 < 2 &amp; ~~c~~", "\\[a\\](b) \\<b> 1 < 2 \\&amp; \\~~c\\~~"),
        ("a\\", "a\\\\"),
    ],
)
def test_a_translation_does_not_become_markup(translation: str, written: str) -> None:
    document = read_markdown(b"text\n")
    rendered = document.render([Segment(translation)]).decode()
    assert rendered == f"{written}\n"
    assert read_markdown(rendered.encode()).segments == ([Segment(translation)] if re.search(
        "[a-z]", translation) else [])  # fmt: skip


def test_a_pipe_in_a_cell_is_escaped() -> None:
    document = read_markdown(b"a|b\n-|-\n")
    assert document.render([Segment("x|y"), Segment("b")]) == b"x\\|y|b\n-|-\n"


@pytest.mark.parametrize(
    ("places", "written"),
    [
        ((2, 5), "a **bc** d"),  # blanks go out of the emphasis
        ((1, 4), "a **bc** d"),
        ((1, 5), "a **bc** d"),
        ((2, 2), "a bc d"),  # **** would be a text
        ((0, 6), "**a bc d**"),
    ],
)
def test_emphasis_moves_to_where_it_is_one(places: tuple[int, int], written: str) -> None:
    document = read_markdown(b"x **y** z")
    tags = Tag(TagKind.OPEN, 0, places[0]), Tag(TagKind.CLOSE, 0, places[1])
    assert document.render([Segment("a bc d", tags)]).decode() == written


def test_emphasis_in_a_word_has_stars() -> None:
    document = read_markdown(b"x _y_ z")
    tags = Tag(TagKind.OPEN, 0, 1), Tag(TagKind.CLOSE, 0, 2)
    assert document.render([Segment("abc", tags)]) == b"a*b*c"


def test_an_exclamation_mark_before_a_link_makes_no_image() -> None:
    document = read_markdown(b"so [y](z)")
    tags = Tag(TagKind.OPEN, 0, 3), Tag(TagKind.CLOSE, 0, 4)
    assert document.render([Segment("So!x", tags)]) == b"So\\![x](z)"


def test_the_translation_has_the_same_structure() -> None:
    """By the page that markdown-it makes of both."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def page(source: str) -> str:
        return re.sub(r"\s+|<br />", "", parser.render(source)).upper()

    chance = random.Random(0)
    bits = ["a ", "b", " ", "\n", "*c* ", "**d e** ", "_f_ ", "~~g~~ ", "`h i` ", "[j *k*](l) ",
            "[r] ", "![m](n) ", "<b>o</b> ", "&lt; ", "\\* ", "2 * 3 ", "\n\n- ", "\n\n> ", "  \n",
            "\n\n# ",
            "\n\n|p|q|\n|-|-|\n|r s|*t*|\n\n", "<http://u.v> ", "\\\n"]  # fmt: skip
    for _ in range(300):
        source = "".join(chance.choices(bits, k=chance.randint(1, 25))) + "\n\n[r]: /url\n"
        document = read_markdown(source.encode())
        assert page(source) == page(document.render(capitals(document)).decode())


def test_any_input_keeps_its_bytes() -> None:
    fuzz(read_markdown, ENTRIES, BITS)


@pytest.mark.parametrize("data", [b"gr\xfcn", b"\xff\xfea", b"\xef\xbb\xbf\xff"])
def test_another_encoding_is_refused(data: bytes) -> None:
    with pytest.raises(DocumentError, match="is not valid UTF"):
        read_markdown(data)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "markdown_it", None)
    with pytest.raises(ValueError, match=r"^Markdown needs the package markdown-it-py: "):
        read_markdown(b"a")


def test_a_hard_break_before_a_capital_letter_ends_a_segment() -> None:
    text = b"Monday: closed  \n**Tuesday**: 9 to 5\\\nor later\nthat day"
    assert texts(read_markdown(text)) == ["Monday: closed", "Tuesday: 9 to 5 or later that day"]


def test_a_paragraph_is_one_segment() -> None:
    assert texts(read_markdown(b"One\n*two*\nthree.\n\nFour\n")) == ["One two three.", "Four"]


@pytest.mark.parametrize(
    "unit",
    ["*", "*a ", "**a* ", "_a", "`a", "``a`", "[", "[a](", "![", "![a](b) ", "]", "> ", "- ",
     "  - ", "1. ", "#", "<a ", "<!--", "<b>x", "\\", "&", "[a]: b\n", '[a]: b "', "| ",
     "|a\n|-\n", "a\n", "\t", "```\n", "~~a ", "[a][b]", ' b="<a "', "(", "[a](<", '[a]("',
     "[a]( ", "a  \n", "\r", "* a\n", "a**b", "*a_ ", "<div>\n", "\0", "---\n", "+++\n",
     "<b translate=no>", "<script>"],
)  # fmt: skip
def test_hostile_files_end_soon(unit: str) -> None:
    check_hostile(read_markdown, (unit * (20_000 // len(unit))).encode())


def test_images_in_images_are_soon_read() -> None:
    n = 3_000
    check_hostile(read_markdown, ("![" * n + "word " * 60_000 + "](a)" * n).encode())
