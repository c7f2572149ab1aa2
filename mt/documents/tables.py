"""Tables (CSV, TSV) and records (JSONL): the columns that are named are translated."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from mt.documents.document import DocumentError
from mt.documents.pieces import Part, Value
from mt.documents.text_document import TextDocument, decode
from mt.utils.checks import printable

DELIMITERS = ",;\t|"  # where several would do, the first
SEPARATOR = re.compile(rf"sep=([{DELIMITERS}])(?:\r\n|\r|\n)")  # as Excel writes before the names
MOST_NAMES = 20  # of columns that an error lists
NEW_LINE = r"\r\n|\r|\n"
LINE = re.compile(r"[^\n]*\n|[^\n]+")
SPACE = re.compile(r"[ \t\r\n]*")
JSON = json.JSONDecoder(parse_int=len, parse_float=len)  # no values: numbers may be too long
CELL = (
    r'(?:"(?P<quoted>[^"]*(?:""[^"]*)*)"(?=[DELIMITER\r\n]|\Z)|(?P<plain>[^DELIMITER\r\n]*))'
    r"(?P<end>\r\n|[DELIMITER\r\n]|\Z)"
)
SURROGATE = re.compile("[\ud800-\udfff]")


class _Cell(NamedTuple):
    raw: str
    value: str
    is_quoted: bool
    end: str  # the delimiter or line break after it


class _Remarks:
    """How many rows lack a text to translate, and how many texts translations replace."""

    def __init__(self) -> None:
        self.rows = 0
        self.without: Counter[str] = Counter()  # by the name of the column
        self.replaced: Counter[str] = Counter()

    def add_row(self, without: Iterable[str], replaced: Iterable[str]) -> None:
        """Count a row by the columns without a text and those whose text is replaced."""
        self.rows += 1
        self.without.update(set(without))
        self.replaced.update(set(replaced))

    def lines(self) -> Iterator[str]:
        for name, number in self.without.items():
            name = printable(name, 50)
            yield f'{number:,} of {self.rows:,} rows have no text in "{name}" to translate'
        for name, number in self.replaced.items():
            name = printable(name, 50)
            yield f'{number:,} of {self.rows:,} rows have a text in "{name}": it is replaced'


class _CsvRemarks(_Remarks):
    """Also how many rows of a table have cells that were probably meant otherwise."""

    def __init__(self, width: int, delimiter: str) -> None:
        super().__init__()
        self.width, self.delimiter = width, delimiter  # of the names
        self.long = 0  # rows with more cells than names
        self.unclosed = 0  # rows with a quotation mark that nothing closes

    def add_cells(self, row: list[_Cell]) -> None:
        """Count the cells of a row, which ``add_row`` counts too."""
        self.long += any(cell.value.strip() for cell in row[self.width :])
        self.unclosed += any(cell.raw.startswith('"') and not cell.is_quoted for cell in row)

    def lines(self) -> Iterator[str]:
        yield from super().lines()
        if self.unclosed:
            yield (
                f"{self.unclosed:,} of {self.rows:,} rows have a cell that begins with a quotation "
                "mark and does not end with one: it is taken as text"
            )
        if self.long:
            yield (
                f"{self.long:,} of {self.rows:,} rows have more cells than names: put a text with "
                f"{self.delimiter!r} in it in quotation marks"
            )


def read_csv(data: bytes, columns: Sequence[str], delimiters: str = DELIMITERS) -> TextDocument:
    """A table with names in its first line, divided by one of ``delimiters``.

    ``columns``: "en" translates the column in place, "en=de" writes the translations of "en" to
    "de", which is added where it is missing. Raises DocumentError if there is no column "en" or
    the file is not UTF-8 or UTF-16.
    """
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    if separator := SEPARATOR.match(text):
        document.parts.append(separator[0])
        text, delimiters = text[separator.end() :], separator[1]
    headers = {delimiter: next(_rows(text, delimiter)) for delimiter in delimiters}
    delimiter = max(headers, key=lambda d: (_has_all(_names(headers[d]), columns), len(headers[d])))
    names = _names(headers[delimiter])
    pairs = _pairs(columns, names)
    known = set(names)
    names += [new for new in dict.fromkeys(new for _, new in pairs) if new not in known]
    number_of = {name: number for number, name in enumerate(names)}
    places = [(number_of[old], number_of[new]) for old, new in pairs]
    width = len(headers[delimiter])
    remarks = _CsvRemarks(width, delimiter)
    for number, row in enumerate(_rows(text, delimiter), 1):
        if len(row) == 1 and not row[0].raw:
            document.parts.append(row[0].end)
        elif number == 1:
            added: list[Part] = [_quoted(name, delimiter) for name in names[width:]]
            document.parts += _joined(row, [cell.raw for cell in row] + added, delimiter)
        elif len(row) > width < len(names):
            raise DocumentError(
                f"has {len(row)} cells in row {number} and {width} names: correct it"
            )
        else:
            remarks.add_cells(row)
            remarks.add_row(
                (names[old] for old, _ in places if not _has_text(row, old)),
                (names[n] for o, n in places if o != n and _has_text(row, o) and _has_text(row, n)),
            )
            document.parts += _joined(row, _cells(document, row, places, delimiter), delimiter)
    document.remarks += remarks.lines()
    return document


def read_jsonl(data: bytes, columns: Sequence[str]) -> TextDocument:
    """Records, a JSON object in each line; ``columns`` are keys, as of ``read_csv``.

    Their values are texts or lists of texts; another value, such as null, stays. Raises
    DocumentError if no record has the key, a line is no object or the file is not UTF-8.
    """
    text, encoding, mark = decode(data)
    document = TextDocument(encoding, mark)
    lines = LINE.findall(text)
    names: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            names |= dict.fromkeys(_members(line, number)[0])
    pairs = _pairs(columns, list(names))
    remarks = _Remarks()
    for number, line in enumerate(lines, 1):
        is_record = bool(line.strip())
        document.parts += _record(document, line, number, pairs, remarks) if is_record else [line]
    document.remarks += remarks.lines()
    return document


def _pairs(columns: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """The columns from which and to which is translated. DocumentError where two go to one."""
    counts = Counter(names)
    pairs = list(dict.fromkeys(_pair(column, counts) for column in columns))
    for new, count in Counter(new for _, new in pairs).items():
        if count > 1:
            message = "two columns cannot be translated to one: name another after ="
            raise DocumentError(f'"{printable(new, 50)}": {message}')
    return pairs


def _pair(column: str, names: Counter[str]) -> tuple[str, str]:
    """The columns from which and to which is translated; ``names`` are all, and how often."""
    old, sign, new = column.partition("=")
    if column in names or not sign:
        old = new = column
    if sign and not new:
        message = "names no column for the translations: name it after ="
        raise DocumentError(f'"{printable(column, 50)}" {message}')
    for name in (old, new):
        if names[name] > 1:
            quoted = f'"{printable(name, 50)}"'
            raise DocumentError(f"has several columns {quoted}: give them other names")
    if old in names and new:
        return old, new
    shown = ["".join(filter(str.isprintable, name))[:50] for name in names if name]
    known = ", ".join(f'"{name}"' for name in shown[:MOST_NAMES]) or "none"
    more = ", ..." if len(shown) > MOST_NAMES else ""
    raise DocumentError(f'has no column "{old}": it has {known}{more}')


# CSV


def _rows(text: str, delimiter: str) -> Iterator[list[_Cell]]:
    """The rows, whose cells together are the text; at least one.

    A quotation mark that does not begin and end a cell is a character as any other.
    """
    row: list[_Cell] = []
    for match in re.finditer(CELL.replace("DELIMITER", delimiter), text):
        quoted, plain, end = match["quoted"], match["plain"], match["end"]
        value = plain if quoted is None else quoted.replace('""', '"')
        row.append(_Cell(match[0][: len(match[0]) - len(end)], value, quoted is not None, end))
        if end != delimiter:
            yield row
            row = []


def _names(header: Iterable[_Cell]) -> list[str]:
    return [cell.value.strip() for cell in header]


def _has_all(names: list[str], columns: Sequence[str]) -> bool:
    known = set(names)
    return all(column in known or column.partition("=")[0] in known for column in columns)


def _cells(
    document: TextDocument, row: list[_Cell], places: list[tuple[int, int]], delimiter: str
) -> list[Part]:
    cells: list[Part] = [cell.raw for cell in row]
    sources: dict[int, list[Part]] = {}
    for old, new in places:
        if old != new and len(cells) <= new:  # also in a row that has nothing to translate
            cells += [""] * (new + 1 - len(cells))
        if not _has_text(row, old):
            continue
        if old not in sources:
            sources[old] = list(document.plain(row[old].value, NEW_LINE))
        like = row[new] if new < len(row) and row[new].raw else row[old]
        encode = partial(_quoted, delimiter=delimiter, like=like)
        cells[new] = Value(row[old].raw, sources[old], encode, always=old != new)
    return cells


def _has_text(row: list[_Cell], place: int) -> bool:
    return place < len(row) and bool(row[place].value.strip())


def _joined(row: list[_Cell], cells: list[Part], delimiter: str) -> Iterator[Part]:
    for i, cell in enumerate(cells):
        yield cell
        yield delimiter if i < len(cells) - 1 else row[-1].end


def _quoted(value: str, delimiter: str, like: _Cell | None = None) -> str:
    """A cell, with quotation marks where they are needed or the cell ``like`` has them."""
    # Quotation marks inside a cell that is not quoted mean nothing.
    has_plain_quotes = like is not None and not like.is_quoted and '"' in like.raw
    if (
        (like is not None and like.is_quoted)
        or value.startswith('"')
        or ('"' in value and not has_plain_quotes)
        or any(character in value for character in (delimiter, "\r", "\n"))
    ):
        return '"' + value.replace('"', '""') + '"'
    return value


# JSONL


class _Member(NamedTuple):
    """A value of a line's object, which is ``line[start:end]``."""

    start: int
    end: int
    value: object

    @property
    def texts(self) -> list[str]:
        """The text, or those of a list of texts; none of another value."""
        values = self.value if isinstance(self.value, list) else [self.value]
        texts = [value for value in values if isinstance(value, str)]
        return texts if len(texts) == len(values) else []


def _record(
    document: TextDocument, line: str, number: int, pairs: list[tuple[str, str]], remarks: _Remarks
) -> list[Part]:
    members, end = _members(line, number)
    as_ascii = line.isascii() and "\\u" in line
    comma, colon = (", ", ": ") if '": ' in line else (",", ":")
    parts: dict[int, tuple[int, list[Part]]] = {}  # start of what they replace -> its end
    added: dict[str, list[Part]] = {}
    names = {name for pair in pairs for name in pair}
    texts = {name: name in members and any(map(str.strip, members[name].texts)) for name in names}
    remarks.add_row(
        (old for old, _ in pairs if not texts[old]),
        (new for old, new in pairs if old != new and texts[old] and texts[new]),
    )
    for old, new in pairs:
        if old not in members or (texts[new] and not texts[old]):
            continue
        values = _texts(document, line, members[old], as_ascii, always=old != new)
        if not values:
            continue
        if new in members:
            parts[members[new].start] = members[new].end, values
        else:
            name = json.dumps(new, ensure_ascii=as_ascii)
            added[new] = [f"{comma}{name}{colon}", *values]
    result: list[Part] = []
    position = 0
    for start in sorted(parts):
        result += [line[position:start], *parts[start][1]]
        position = parts[start][0]
    result.append(line[position:end])
    for values in added.values():
        result += values
    return [*result, line[end:]]


def _texts(
    document: TextDocument, line: str, member: _Member, as_ascii: bool, always: bool
) -> list[Part]:
    """The parts of a text or of a list of texts; none of another value."""
    encode = partial(_dumped, as_ascii=as_ascii)
    result: list[Part] = []
    position = member.start
    for text in member.texts:
        begin = line.index('"', position)
        end = JSON.raw_decode(line, begin)[1]
        parts = list(document.plain(text, NEW_LINE))
        result += [line[position:begin], Value(line[begin:end], parts, encode, always)]
        position = end
    return [*result, line[position : member.end]] if result else []


def _members(line: str, number: int) -> tuple[dict[str, _Member], int]:
    """The members of a line's object, and where the last of them ends."""
    members: dict[str, _Member] = {}
    try:
        position = end = _after(line, 0, "{")
        while line[position : position + 1] != "}":
            position = _after(line, position, ",") if members else position
            key, position = JSON.raw_decode(line, position)
            start = _after(line, position, ":")
            value, end = JSON.raw_decode(line, start)
            if not isinstance(key, str):
                raise ValueError("a key is no text")
            members[key] = _Member(start, end, value)
            position = _blank(line, end)
        if line[position + 1 :].strip():
            raise ValueError("more than an object")
    except (ValueError, RecursionError):
        raise DocumentError(f"line {number} is no JSON object: correct it") from None
    return members, end


def _after(line: str, position: int, sign: str) -> int:
    """The next place that is not blank after a ``sign``, which must come."""
    position = _blank(line, position)
    if line[position : position + 1] != sign:
        raise ValueError(f"no {sign}")
    return _blank(line, position + 1)


def _blank(line: str, position: int) -> int:
    match = SPACE.match(line, position)
    return match.end() if match else position


def _dumped(text: str, as_ascii: bool) -> str:
    return json.dumps(text, ensure_ascii=as_ascii or bool(SURROGATE.search(text)))
