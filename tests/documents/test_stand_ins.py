"""Codes that stand for program code: each is put back once, whatever a translation does."""

from itertools import islice

import pytest

from mt.documents.document import Segment, Tag, TagKind
from mt.documents.html import HtmlDocument
from mt.documents.markdown import read_markdown
from mt.documents.stand_ins import unused_codes
from mt.inference.kept import find_kept

BOTH = "<p>Use <code> a&amp;b </code> or <kbd>c</kbd>, now.</p>"  # H5 and M6


@pytest.mark.parametrize(
    ("translation", "rendered"),
    [
        ("Nutze H5 oder M6, nun.", "Nutze <code> a&amp;b </code> oder <kbd>c</kbd>, nun."),
        ("M6 (H5)", "<kbd>c</kbd> (<code> a&amp;b </code>)"),
        ("die H5-Datei, M6s", "die <code> a&amp;b </code>-Datei, <kbd>c</kbd>s"),
        # Twice
        ("Nutze H5 oder M6, H5 und M6.", "Nutze <code> a&amp;b </code> oder <kbd>c</kbd>, und."),
        # Lost: as far in the text as it was
        ("Nutze das oder M6, nun.", "Nutze <code> a&amp;b </code> das oder <kbd>c</kbd>, nun."),
        ("Nutze H5 oder das.", "Nutze <code> a&amp;b </code> oder <kbd>c</kbd> das."),
        ("Nutze!", "Nutze <code> a&amp;b </code> <kbd>c</kbd>!"),
        ("H55 M66 H6", "H55 <code> a&amp;b </code> M66 <kbd>c</kbd> H6"),
        ("", "<code> a&amp;b </code> <kbd>c</kbd>"),
        ("…", "… <code> a&amp;b </code> <kbd>c</kbd>"),
    ],
)
def test_each_is_put_back_once(translation: str, rendered: str) -> None:
    document = HtmlDocument(BOTH)
    assert [segment.text for segment in document.segments] == ["Use H5 or M6, now."]
    assert document.render_text([Segment(translation)]) == f"<p>{rendered}</p>"


@pytest.mark.parametrize(
    ("opens", "closes", "rendered"),
    [
        (0, 2, "<b><code>x</code></b> ist gut"),
        (1, 2, "<b><code>x</code></b> ist gut"),  # in the code
        (0, 1, "<b><code>x</code></b> ist gut"),
        (1, 1, "<b><code>x</code></b> ist gut"),
        (2, 6, "<code>x</code><b> ist</b> gut"),
        (1, 99, "<b><code>x</code> ist gut</b>"),
    ],
)
def test_tags_around_code(opens: int, closes: int, rendered: str) -> None:
    document = HtmlDocument("<code>x</code> is <b>very</b> good")
    tags = Tag(TagKind.OPEN, 0, opens), Tag(TagKind.CLOSE, 0, closes)
    assert document.render_text([Segment("H5 ist gut", tags)]) == rendered


@pytest.mark.parametrize(
    "code", ["`x`", "`` a`b ``", "`` ` ``", "` x `", "```a``b```", "`**a**`", "<https://a.b/c_d>",
             "<code>*x*</code>", "`a\n  b`"],
)  # fmt: skip
def test_code_of_markdown_keeps_its_characters(code: str) -> None:
    document = read_markdown(f"Use {code}, then go.\n\n{code}\n".encode())
    [segment] = document.segments
    assert segment == Segment("Use H5, then go.")
    rendered = document.render([Segment("Dann H5 nutzen.")]).decode()
    assert rendered == f"Dann {code} nutzen.\n\n{code}\n"


def test_two_spans_of_code_do_not_become_one() -> None:
    document = read_markdown(b"Use `a` or `b`.")
    assert document.render([Segment("Nutze H5M6.")]) == b"Nutze `a` `b`."


def test_codes_are_new_and_kept() -> None:
    text = "H5, A1 and T7"
    codes = list(islice(unused_codes(text), 300))
    assert codes[:3] == ["M6", "G8", "K9"]
    assert len(set(codes)) == 300
    for code in codes:
        [kept] = find_kept(f"Use {code}, then go.")
        assert kept.forms == (code,)
