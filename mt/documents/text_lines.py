"""Lines that end in a break, such as ``<br>``: each is a segment, as a reader sees it."""

from collections.abc import Iterable, Iterator
from itertools import islice

from mt.documents.document import goes_on_after
from mt.documents.pieces import Part, Piece, Writer
from mt.documents.text_document import MAX_PIECES, TextDocument, partners_of

CODE = "code"  # stands for some: a sentence goes on with it
MOST_DEPTH = 20  # elements in one another whose lines are segments


def line_parts(
    document: TextDocument, pieces: Iterable[Piece], write: Writer, depth: int = 0
) -> Iterator[Part]:
    """The parts for ``pieces``, with a segment for each line as a reader sees it.

    A break ends a line where a word with a capital letter, a number or a sign follows; before a
    small letter the sentence goes on, and within an element such as a link it stays together.
    """
    pieces = list(islice(pieces, MAX_PIECES + 1))
    document.check_count(len(pieces))
    if not any(piece.breaks for piece in pieces):
        yield from document.run(pieces, write)
        return
    partners = partners_of(pieces)
    goes_on = goes_on_after([CODE if piece.is_noun else piece.text for piece in pieces])
    opened = begin = 0
    has_ended = False  # by a break, as the last thing in elements that are closed after it
    for i, piece in enumerate(pieces):
        opened += (partners[i] > i) - (0 <= partners[i] < i)
        if piece.breaks and not goes_on[i]:
            has_ended = True
        elif not (0 <= partners[i] < i):
            has_ended = False
        if has_ended and not opened:
            end = i + 1
            yield from _line(document, pieces[begin:end], partners[begin:end], begin, write, depth)
            begin, has_ended = end, False
    yield from _line(document, pieces[begin:], partners[begin:], begin, write, depth)


def _line(
    document: TextDocument,
    pieces: list[Piece],
    partners: list[int],
    begin: int,
    write: Writer,
    depth: int,
) -> Iterator[Part]:
    """The parts for what is between two breaks; an element around all of it has lines too.

    ``partners`` counts from ``begin`` pieces before.
    """
    texts = [i for i, piece in enumerate(pieces) if piece.is_noun or piece.text.strip()]
    around = []
    if texts and depth < MOST_DEPTH and any(piece.breaks for piece in pieces):
        around = [i for i in range(texts[0]) if partners[i] - begin > texts[-1]]
    if not around:
        yield from document.run(pieces, write)
        return
    start = around[-1] + 1
    end = partners[around[-1]] - begin
    for piece in pieces[:start]:
        yield from piece.raw
    yield from line_parts(document, pieces[start:end], write, depth + 1)
    for piece in pieces[end:]:
        yield from piece.raw
