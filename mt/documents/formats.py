"""Which file is of which format: a document is read by the end of its name."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath

from mt.documents.archive import refuse_unread_format
from mt.documents.document import Document, DocumentError
from mt.utils.console import install_hint

Reader = Callable[[bytes], Document]

HTML = (".html", ".htm", ".xhtml")
MARKDOWN = (".md", ".markdown")
OPEN_DOCUMENT = (".odt", ".ods", ".odp")
TABLES = (".csv", ".tsv", ".jsonl")  # whose columns must be named
PLAIN = ".txt"  # for ``mt.translate`` a file of lines, such as a corpus
EXTENSIONS = (
    ".docx", ".pptx", *OPEN_DOCUMENT, *HTML, *MARKDOWN, PLAIN, ".srt", ".vtt", ".po", ".pot",
    *TABLES,
)  # fmt: skip


def extension_of(name: str) -> str:
    """The end of a file name from its last point, in lower case."""
    return PurePath(name).suffix.lower()


def read_document(name: str, data: bytes, columns: Sequence[str] = ()) -> Document:
    """The document of a file called ``name``.

    ``columns`` say what of a table is translated (``mt.documents.tables``). Raises DocumentError
    for a format that cannot be read, a table without columns, and what is wrong in the file; and
    ValueError where a package is missing.
    """
    extension = extension_of(name)
    refuse_unread_format(extension)
    if extension not in EXTENSIONS:
        raise DocumentError(f"is no document that can be read: {', '.join(EXTENSIONS)}")
    if columns and extension not in TABLES:
        raise DocumentError(f"has no columns: those of {', '.join(TABLES)} have names")
    if not columns and extension in TABLES:
        raise DocumentError("is a table: name the columns to translate")
    try:
        with _paused_collector():
            return _reader(extension, columns)(data)
    except ImportError as error:
        package = error.name or str(error)
        hint = install_hint("documents")
        raise ValueError(f"{extension} needs the package {package}: {hint}") from None


@contextmanager
def _paused_collector() -> Iterator[None]:
    """There are no cycles; Python's search for them would take most of the time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _reader(extension: str, columns: Sequence[str]) -> Reader:
    """Each format is imported alone: some need packages that others do without."""
    if extension == ".docx":
        from mt.documents.docx import read_docx

        return read_docx
    if extension == ".pptx":
        from mt.documents.pptx import read_pptx

        return read_pptx
    if extension in OPEN_DOCUMENT:
        from mt.documents.odt import read_odt

        return read_odt
    if extension in HTML:
        from mt.documents.html import HtmlDocument

        return partial(HtmlDocument.from_bytes, is_xml=extension == ".xhtml")
    if extension in MARKDOWN:
        from mt.documents.markdown import read_markdown

        return read_markdown
    if extension in (".po", ".pot"):
        from mt.documents.gettext import read_po

        return read_po
    if extension in TABLES:
        from mt.documents.tables import DELIMITERS, read_csv, read_jsonl

        if extension == ".jsonl":
            return partial(read_jsonl, columns=columns)
        # Of a single column any delimiter would do.
        delimiters = DELIMITERS if extension == ".csv" else "\t" + DELIMITERS.replace("\t", "")
        return partial(read_csv, columns=columns, delimiters=delimiters)
    if extension == PLAIN:
        from mt.documents.plain_text import read_txt

        return read_txt
    from mt.documents.subtitles import read_srt, read_vtt

    return read_srt if extension == ".srt" else read_vtt
