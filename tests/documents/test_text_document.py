"""What the text formats share."""

from functools import partial

import pytest

from mt.documents import text_document
from mt.documents.document import DocumentError, Segment
from mt.documents.gettext import read_po
from mt.documents.html import HtmlDocument
from mt.documents.markdown import read_markdown
from mt.documents.subtitles import read_srt, read_vtt
from mt.documents.tables import read_csv, read_jsonl

READERS = [
    HtmlDocument.from_bytes, read_markdown, read_po, read_srt, read_vtt,
    partial(read_csv, columns=["en"]), partial(read_jsonl, columns=["en"]),
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_a_file_that_is_too_long_is_refused(read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_document, "MAX_BYTES", 2 * 2**20)
    with pytest.raises(
        DocumentError, match=r"^has 3 MB, more than 2 MB: cut it into several files$"
    ):
        read(b" " * 3 * 2**20)


@pytest.mark.parametrize("read", READERS)
def test_other_bytes_than_text_are_refused(read) -> None:
    with pytest.raises(DocumentError, match="is not valid UTF-8: save it as UTF-8"):
        read(b"PK\x03\x04\xff\xfe\x00\x80")


def test_a_file_with_too_many_tags_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_document, "MAX_PIECES", 2000)
    with pytest.raises(DocumentError, match=r"^has more than 2,000 tags and texts: cut it"):
        HtmlDocument("<b>x" * 1001)
    assert HtmlDocument("<b>x" * 1000).segments
    with pytest.raises(DocumentError, match="tags and texts"):
        read_markdown(b"|" * 2001)
    with pytest.raises(DocumentError, match="tags and texts"):
        read_csv(b"en\n" + b"A b\n" * 2001, ["en"])


def test_the_number_of_translations_must_be_that_of_the_segments() -> None:
    with pytest.raises(ValueError, match="1 translations for 2 segments"):
        HtmlDocument("<p>a<p>b").render([Segment("x")])
