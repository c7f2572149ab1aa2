"""Files that are documents: read, translated a block of texts at a time, and written whole."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mt.documents.archive import MAX_UNPACKED, UNREAD_FORMATS, refuse_unread_format
from mt.documents.document import Document, DocumentError, Segment, Tag, TagKind
from mt.documents.formats import EXTENSIONS, MARKDOWN, PLAIN, TABLES, extension_of, read_document
from mt.documents.tags import translate_segments
from mt.inference.translation import Translation
from mt.utils.line_io import ResumableFile

BLOCK = 256  # texts that are translated and kept together

Record = dict[str, Any]


def is_document(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file says that it is a document, not lines of text.

    That is so also for one that cannot be read: ``load_document`` says as what to save it.
    """
    extension = extension_of(os.fspath(path))
    return extension != PLAIN and extension in (*EXTENSIONS, *UNREAD_FORMATS)


def refusal(path: str | os.PathLike[str]) -> str:
    """Why a document of this name cannot be read, and as what to save it; else nothing."""
    try:
        refuse_unread_format(extension_of(os.fspath(path)))
    except DocumentError as error:
        return str(error)
    return ""


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether the columns of a document must be named."""
    return extension_of(os.fspath(path)) in TABLES


def may_hold_lines(path: str | os.PathLike[str]) -> bool:
    """Whether lines of text may be written to a file of this name, or JSON for that matter."""
    return not is_document(path) or extension_of(os.fspath(path)) in (*MARKDOWN, *TABLES, ".json")


def load_document(path: str | os.PathLike[str], columns: Sequence[str] = ()) -> Document:
    """Raises OSError, and ValueError that begins with the path."""
    with open(path, "rb") as stream:
        data = stream.read(MAX_UNPACKED + 1)
    try:
        if len(data) > MAX_UNPACKED:
            raise DocumentError(f"is larger than {MAX_UNPACKED:,} bytes: divide it")
        return read_document(os.fspath(path), data, columns)
    except DocumentError as error:
        raise DocumentError(f"{path}: {error}") from None


def translate_document(
    document: Document,
    translate: Callable[..., list[Translation]],
    output: ResumableFile,
    on_block: Callable[[int], object] = lambda texts: None,
) -> Iterator[Record]:
    """Write the translation of a document to ``output``; gives a record for each of its texts.

    ``translate`` is as ``mt.documents.tags.translate_segments`` wants it. After each block the
    texts done are kept, and ``on_block`` gets their number. The records have ``source``,
    ``translation`` and ``confidence``. Raises ValueError when ``output`` keeps another document.
    """
    kept = list(output.kept_lines())
    done: list[Segment] = []
    for start in range(0, len(document.segments), BLOCK):
        block = document.segments[start : start + BLOCK]
        left = output.skip([_line(segment) for segment in block])
        lines = kept[start : start + len(block) - len(left)]
        todo = block[len(lines) :]
        if todo:
            new = _translated_lines(todo, translate)
            output.write(left, "".join(f"{line}\n" for line in new))
            lines += new
        for segment, line in zip(block, lines, strict=True):
            record = json.loads(line)
            done.append(_segment(record))
            yield {
                "source": segment.text,
                "translation": record["text"],
                "confidence": record["confidence"],
            }
        on_block(len(done))
    output.replace(document.render(done))


def _translated_lines(
    segments: Sequence[Segment], translate: Callable[..., list[Translation]]
) -> list[str]:
    confidence: dict[str, float] = {}

    def translate_and_note(texts: list[str], **settings: Any) -> list[Translation]:
        results = translate(texts, **settings)
        confidence.update((result.source, result.confidence) for result in results)
        return results

    translated = translate_segments(segments, translate_and_note)
    return [
        _line(new, round(confidence[old.text], 4))
        for old, new in zip(segments, translated, strict=True)
    ]


def _line(segment: Segment, confidence: float | None = None) -> str:
    """A segment as a line of JSON."""
    tags = [(tag.kind.value, tag.number, tag.position) for tag in segment.tags]
    return json.dumps({"text": segment.text, "tags": tags, "confidence": confidence})


def _segment(record: Record) -> Segment:
    tags = (Tag(TagKind(kind), number, position) for kind, number, position in record["tags"])
    return Segment(record["text"], tuple(tags))
