"""Subtitles, SRT and WebVTT: the text of the cues is translated, numbers and times stay."""

import re
from collections.abc import Iterator
from functools import partial

from mt.documents.document import DocumentError, TagKind
from mt.documents.html import unescape
from mt.documents.pieces import Part, Piece, Written
from mt.documents.text_document import TextDocument, decode, tag_piece, text_pieces

LINE_WIDTH = 42  # characters: the longest line that television takes
EXAMPLE = "00:00:01,000 --> 00:00:02,500"
LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
SECONDS = r"(?:\d{1,4}:)?\d{1,2}:\d{2}"
TIME = rf"{SECONDS}[,.]\d{{1,3}}"
TIMES = re.compile(rf"\s*{SECONDS}(?:[,.]\d{{1,3}})?[ \t]*-->[ \t]*{SECONDS}")
LIKE_TIMES = re.compile(  # taken for text, they would be lost
    rf"\s*{SECONDS}[,.\d]*[ \t]*-+>[ \t]*{SECONDS}[,.\d]*\s*\Z"
)
# <i>, </font> and <c.yellow>, WebVTT's times, and the {\an8} of other players
TAG = re.compile(rf"</?([a-zA-Z]\w*)(?!\w)[^<>\r\n]*>|<{TIME}>|{{\\[^{{}}\r\n]*}}")
DASH = re.compile(r"\s*[-–—]\s*(?=\S)")
# TOM: or a song, as subtitles for the hard of hearing have them
SPEAKER = re.compile(r"\s*(?:[A-ZÀ-ÖØ-Þ][A-ZÀ-ÖØ-Þ .'’#0-9-]{0,30}:\s|♪)")
VOICE = re.compile(r"\s*<v[ \t.]")  # <v Tom> of WebVTT
ENDED = re.compile(r"[^\w,;\s]\s*\Z")


def read_srt(data: bytes) -> TextDocument:
    """SRT. Raises DocumentError for no subtitle, odd times, and if it is not UTF-8 or UTF-16."""
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    lines = LINE.findall(text)
    starts = [i for i, line in enumerate(lines) if TIMES.match(line)]
    for i, line in enumerate(lines, 1):
        if LIKE_TIMES.match(line) and not TIMES.match(line):
            raise DocumentError(f"line {i} is no line of times such as {EXAMPLE}: correct it")
    if not starts:
        raise DocumentError(f"has no subtitle: no line such as {EXAMPLE}")
    document.parts += lines[: starts[0] + 1]
    for start, following in zip(starts, [*starts[1:], len(lines)], strict=True):
        end = following
        if following < len(lines) and lines[following - 1].strip().isdecimal():
            end = max(start + 1, following - 1)  # the number of the next cue
        cue: list[str] = []
        for line in lines[start + 1 : end]:
            if line.strip():
                cue.append(line)
            else:  # an empty line should end the cue; a text after it is still one
                document.parts += [*_cue(document, cue, is_vtt=False), line]
                cue = []
        document.parts += [*_cue(document, cue, is_vtt=False), *lines[end : following + 1]]
    return document


def read_vtt(data: bytes) -> TextDocument:
    """WebVTT. Raises DocumentError if it does not begin with WEBVTT or is not UTF-8."""
    text, encoding, mark = decode(data)
    if not re.match(r"WEBVTT(?!\S)", text):
        raise DocumentError("is no WebVTT: its first line does not begin with WEBVTT")
    document = TextDocument(encoding, mark)
    block: list[str] = []
    for line in [*LINE.findall(text), ""]:
        if line.strip("\r\n"):
            block.append(line)
            continue
        # The times are the first or second line; NOTE, STYLE and REGION have none.
        start = next((i for i, one in enumerate(block[:2]) if TIMES.match(one)), len(block))
        document.parts += block[: start + 1]
        document.parts += [*_cue(document, block[start + 1 :], is_vtt=True), line]
        block = []
    return document


def _cue(document: TextDocument, lines: list[str], is_vtt: bool) -> Iterator[Part]:
    """The parts of a cue; where a dash or a name begins its lines, each speaker has a segment."""
    speakers: list[list[str]] = []
    for line in lines:
        has_ended = bool(speakers) and ENDED.search(speakers[-1][-1])
        is_voice = is_vtt and VOICE.match(line)
        if not speakers or is_voice or DASH.match(line) or (has_ended and SPEAKER.match(line)):
            speakers.append([])
        speakers[-1].append(line)
    for spoken in speakers:
        dash = match[0] if (match := DASH.match(spoken[0])) else ""
        text = "".join(spoken)[len(dash) :]
        new_line = next(iter(re.findall(r"\r\n|\r|\n", text)), "\n")
        write = partial(_write, lines=len(spoken), new_line=new_line, is_vtt=is_vtt)
        yield dash
        yield from document.run(_pieces(text, is_vtt), write)


def _pieces(text: str, is_vtt: bool) -> Iterator[Piece]:
    position = 0
    for match in TAG.finditer(text):
        yield from text_pieces(text[position : match.start()], unescape if is_vtt else str)
        if match[1]:
            yield tag_piece(match[0], match[1].lower())
        else:
            yield Piece((match[0],), kind=TagKind.EMPTY)
        position = match.end()
    yield from text_pieces(text[position:], unescape if is_vtt else str)


def _write(written: list[Written], lines: int, new_line: str, is_vtt: bool) -> str:
    """A translation in as many ``lines`` as the cue had, in more where they would be too long."""
    words, widths = [""], [0]
    for text, tag in written:
        if tag:
            words[-1] += text
            continue
        for i, word in enumerate(text.split(" ")):
            if i:
                words.append("")
                widths.append(0)
            words[-1] += _escaped(word, is_vtt)
            widths[-1] += len(word)
    width = _balanced(widths, max(lines, len(_filled(widths, LINE_WIDTH))))
    rows = iter(words)
    return new_line.join(
        " ".join(next(rows) for _ in range(size)) for size in _filled(widths, width)
    )


def _balanced(widths: list[int], count: int) -> int:
    """The least width with which the words fill at most ``count`` lines."""
    low, high = max(widths), sum(widths) + len(widths)
    while low < high:
        middle = (low + high) // 2
        if len(_filled(widths, middle)) > count:
            low = middle + 1
        else:
            high = middle
    return low


def _filled(widths: list[int], width: int) -> list[int]:
    """How many words each line takes."""
    sizes, used = [0], 0
    for word in widths:
        if sizes[-1] and used + 1 + word > width:
            sizes.append(0)
        used = used + 1 + word if sizes[-1] else word
        sizes[-1] += 1
    return sizes


def _escaped(word: str, is_vtt: bool) -> str:
    if is_vtt:
        return word.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return word.replace("-->", "->")  # no escapes, and --> would be a line of times
