"""What holds for every text format, whatever a file has in it."""

import random
import time
from collections.abc import Callable, Sequence

from mt.documents.document import DocumentError, Segment, TagKind
from mt.documents.text_document import TextDocument

Read = Callable[[bytes], TextDocument]
EXAMPLES = 400
SECONDS = 20  # for a hostile file that takes less than two on a free machine


def texts(document: TextDocument) -> list[str]:
    return [segment.text for segment in document.segments]


def shouted(document: TextDocument) -> str:
    """The file with its texts in capitals and the tags where they were."""
    return document.render(capitals(document)).decode()


def capitals(document: TextDocument) -> list[Segment]:
    return [Segment(segment.text.upper(), segment.tags) for segment in document.segments]


def check(read: Read, data: bytes, keeps: bool = True) -> TextDocument | None:
    """Read a file and render it unchanged, which gives its bytes if ``keeps``, and changed.

    None for one that is refused.
    """
    document = read_or_refuse(read, data)
    if document is None:
        return None
    rendered = document.render(document.segments)
    assert rendered == data or not keeps
    for segment in document.segments:
        check_segment(segment)
    document.render(capitals(document))
    chance = random.Random(0)
    document.render([moved(segment, chance) for segment in document.segments])
    return document


def read_or_refuse(read: Read, data: bytes) -> TextDocument | None:
    """None for a file that is refused, in one line."""
    try:
        return read(data)
    except DocumentError as error:
        message = str(error)
    assert message.isprintable()
    assert len(message) < 300
    return None


def check_segment(segment: Segment) -> None:
    assert segment.text == segment.text.strip()
    assert len(segment.text.splitlines()) == 1
    assert any(map(str.isalpha, segment.text))
    positions = [0, *(tag.position for tag in segment.tags), len(segment.text)]
    assert positions == sorted(positions)
    opened: list[int] = []
    for tag in segment.tags:
        if tag.kind is TagKind.OPEN:
            opened.append(tag.number)
        elif tag.kind is TagKind.CLOSE:
            assert opened.pop() == tag.number
    assert not opened
    numbers = [tag.number for tag in segment.tags if tag.kind is not TagKind.CLOSE]
    assert numbers == list(range(len(numbers)))


def moved(segment: Segment, chance: random.Random) -> Segment:
    """A translation that is full of markup, with the tags anywhere."""
    text = f'{segment.text[::-1]} "Ä* _[x](y)`|<b>&amp; -->'
    places = sorted(chance.randint(0, len(text)) for _ in segment.tags)
    tags = zip(segment.tags, places, strict=True)
    return Segment(text, tuple(tag._replace(position=place) for tag, place in tags))


def fuzz(
    read: Read, entries: Sequence[str], bits: Sequence[str], keeps: bool = True, start: str = ""
) -> None:
    """Sound entries behind ``start``, of which most are damaged with some of ``bits``."""
    chance = random.Random(0)
    accepted = 0
    for _ in range(EXAMPLES):
        text = "".join(chance.choices(entries, k=chance.randint(0, 5)))
        for _ in range(chance.choice([0, 1, 2, 10])):
            place = chance.randint(0, len(text))
            text = text[:place] + chance.choice(bits) + text[place + chance.choice([0, 1, 3]) :]
        accepted += check(read, f"{start}{text}".encode(), keeps) is not None
    assert accepted > EXAMPLES / 4


def check_hostile(read: Read, data: bytes) -> None:
    begin = time.process_time()
    document = read_or_refuse(read, data)
    if document is not None:
        document.render([Segment(f"{s.text} x", s.tags) for s in document.segments])
    assert time.process_time() - begin < SECONDS
