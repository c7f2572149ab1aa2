"""Markdown (CommonMark with tables and front matter): its texts are translated."""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from mt.documents.html import html_parts
from mt.documents.markdown_inline import Inline
from mt.documents.markdown_writer import write_markdown
from mt.documents.pieces import Part
from mt.documents.text_document import TextDocument, decode
from mt.documents.text_lines import line_parts
from mt.utils.console import install_hint

if TYPE_CHECKING:
    from markdown_it.token import Token

MOST_NESTED = 50  # lists and quotations in each other; deeper ones stay as they are
LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)")
# Of YAML or TOML. A first line before an empty one, and no key, is a horizontal rule.
FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\r?\n(?=.*\S|\s*[\w\"'-]+[ \t]*:)(?:.*\n)*?(?:---|\.\.\.)"
    r"|\+\+\+[ \t]*\r?\n(?:.*\n)*?\+\+\+)[ \t]*(?:\r?\n|\Z)"
)


class _Block(NamedTuple):
    """What is translated from ``start`` to ``end`` of the file."""

    start: int
    end: int
    parts: list[Part]


def read_markdown(data: bytes) -> TextDocument:
    """Paragraphs, headings, table cells and the texts in HTML blocks; code stays.

    A paragraph of several lines is one segment; its translation is written in one line. Raises
    DocumentError if the file is not UTF-8 or UTF-16, and ValueError without markdown-it-py.
    """
    try:
        from markdown_it import MarkdownIt
    except ImportError:
        hint = install_hint("documents")
        raise ValueError(f"Markdown needs the package markdown-it-py: {hint}") from None
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    document.check_count(text.count("\n") + text.count("|"))  # the parser makes tokens of each
    front = FRONT_MATTER.match(text)
    begin = front.end() if front else 0
    lines = [match.span(1) for match in LINE.finditer(text, begin)]
    # The same length in each line, so that what is found there has its place in the file
    body = "\n".join(text[start:end] for start, end in lines).replace("\0", "\ufffd")
    parser = MarkdownIt("commonmark", {"maxNesting": MOST_NESTED}).enable("table")
    tokens: list[Token] = []
    environment: dict[str, dict[str, object]] = {}
    parser.block.parse(body, parser, environment, tokens)
    references = frozenset(environment.get("references", ()))
    position = 0
    for block in _blocks(document, text, lines, tokens, references):
        document.parts += [text[position : block.start], *block.parts]
        position = block.end
    document.parts.append(text[position:])
    return document


def _blocks(
    document: TextDocument,
    text: str,
    lines: Sequence[tuple[int, int]],
    tokens: Sequence["Token"],
    references: frozenset[str],
) -> Iterator[_Block]:
    row, cell = -1, 0  # line of a table, and where the search for its next cell begins
    for before, token in pairwise([*tokens[:1], *tokens]):
        if token.map is None:
            continue
        if token.type == "html_block" and (
            span := _html_span(text, lines[slice(*token.map)], token.content)
        ):
            yield _Block(*span, html_parts(document, text[slice(*span)]))
        if token.type != "inline" or not token.content.strip():
            continue
        in_table = before.type in ("th_open", "td_open")
        if in_table:
            if row != token.map[0]:
                row, cell = token.map[0], lines[token.map[0]][0]
            span = _cell(text, token.content, cell, lines[row][1])
            spans = [span] if span else []
            cell = span[1] if span else lines[row][1]  # the rest of an unclear row stays
        else:
            is_heading = before.markup.startswith("#")
            spans = _spans(text, lines[slice(*token.map)], token.content, is_heading)
        if spans:
            inline = Inline(document, text, spans, references)
            write = partial(write_markdown, in_table=in_table)
            yield _Block(
                spans[0][0], spans[-1][1], list(line_parts(document, inline.pieces(), write))
            )


def _html_span(text: str, lines: Sequence[tuple[int, int]], content: str) -> tuple[int, int] | None:
    """Where a block of HTML lies; None if signs of a quotation come in its lines."""
    first, *others = content.split("\n")
    for (start, end), row in zip(lines[1:], others, strict=False):
        if text[start:end].removesuffix(row).strip():
            return None
    start = max(text.find(first.strip(), *lines[0]), lines[0][0])
    return start, lines[-1][1]


def _spans(
    text: str, lines: Sequence[tuple[int, int]], content: str, is_heading: bool
) -> list[tuple[int, int]]:
    """Where the lines of a paragraph or heading lie; none if that is not clear."""
    spans = []
    rows = content.split("\n")
    for (start, end), row in zip(lines, rows, strict=False):
        line, part = text[start:end].replace("\0", "\ufffd"), row.strip()
        # A heading may end with more signs: # Title #
        at = line.rfind(part) if is_heading else len(line.rstrip()) - len(part)
        if at < 0 or line[at : at + len(part)] != part:
            return []
        spans.append((start + at, end))
    start = spans[-1][0]
    return [*spans[:-1], (start, start + len(rows[-1].strip()))]


def _cell(text: str, content: str, start: int, end: int) -> tuple[int, int] | None:
    """Where a cell of a table lies in ``text[start:end]``, the part of its line not yet read."""
    raw = content.replace("|", "\\|")
    line = text[:end].replace("\0", "\ufffd") if "\0" in text[start:end] else text
    while (at := line.find(raw, start, end)) >= 0:
        start = at + len(raw)
        following = text[start:end].lstrip()[:1]
        if following in ("", "|"):
            return at, start
    return None
