"""Messages of programs (gettext, .po): entries without a translation get one."""

import codecs
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from mt.documents.document import DocumentError
from mt.documents.html import ENCODINGS
from mt.documents.pieces import Part, Value
from mt.documents.text_document import TextDocument, decode

# Not polib, which wraps and orders the lines of a file in its own way.
LINE = re.compile(r"[^\n]*\n|[^\n]+")
STRING = re.compile(
    r'(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[(?P<number>\d{1,3})\])?)?'
    r'\s*"(?P<value>[^"\\]*(?:\\.[^"\\]*)*)"\s*'
)  # fmt: skip
NUMBER = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2}))")  # of a byte
ESCAPE = re.compile(rf"((?:{NUMBER.pattern})+)|\\(.)")
log = logging.getLogger(__name__)

ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
# A label such as "_Save" or "Save &as": words, one of them with the sign before its first letter.
# Signs within words, as in "R&D" or "E&xit", stay: they may mean something else.
ACCELERATOR = re.compile(r"(?<!\S)[_&](?=[^\W\d_]+(?:…|\.\.\.|:|\Z|\s))")
LABEL = re.compile(r"[^\n_&`{}<>/\\$%@=]{0,60}")  # without its accelerator
WIDTH = 79  # of the lines that gettext's own programs write, with the quotes
NEEDED = "äöüÄÖÜß„“–"
FORM_END = "\ud800"  # between the forms of a message: no text has it
# A line of a message goes on in the next one that begins with a small letter.
NEW_LINE = r"\n+(?![a-z])|\t+"
FORMAT = re.compile(r"#,.*(?<!no-)\b(?:c|objc|python|perl|php|gcc-internal|qt|boost)-format\b")
DIRECTIVE = re.compile(
    r"%(\(\w+\)|\d+\$)?[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh?|ll?|[qLjzt])?[diouxXeEfFgGaAcsp%]"
)


@dataclass
class _Entry:
    lines: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)  # by keyword
    places: dict[str, list[int]] = field(default_factory=dict)  # the lines of each


def read_po(data: bytes) -> TextDocument:
    """Messages without a translation; those that are marked as uncertain (fuzzy) stay.

    German has two plural forms: the second and any further get the plural's translation. Raises
    DocumentError for a line that is none of such a file, and for an encoding without German.
    """
    text, encoding, mark = decode(data, _declared(data))
    document = TextDocument(encoding, mark)
    for entry in _entries(text):
        document.parts += _translatable(document, entry)
    return document


def _declared(data: bytes) -> str:
    """The encoding that the header names, which must have what German needs."""
    charset = re.search(rb"charset=([\w.:-]{1,40})", data[:10_000])
    label = charset[1].decode("ascii", "replace") if charset else "utf-8"
    try:
        name = "utf-8" if label == "CHARSET" else codecs.lookup(label).name  # as in a template
        if ENCODINGS.fullmatch(name):
            NEEDED.encode(name)
            return name
    except (LookupError, UnicodeError):
        pass
    raise DocumentError(
        f"is in {label}, which lacks German letters or quotation marks: convert it with "
        "msgconv --to-code=UTF-8"
    )


def _entries(text: str) -> Iterator[_Entry]:
    """The entries, whose lines together are the file."""
    entry, last = _Entry(), ""
    for number, line in enumerate(LINE.findall(text), 1):
        if entry.lines and entry.lines[-1].startswith("#~") and not line.startswith("#~"):
            yield entry  # the flags of an obsolete entry end with it
            entry = _Entry()
        if not line.strip() or line.startswith("#"):
            if any(keyword.startswith("msgstr") for keyword in entry.values):
                yield entry
                entry = _Entry()
            last = ""
            entry.lines.append(line)
            continue
        match = STRING.fullmatch(line.strip())
        if match is None or not (match["keyword"] or last):
            raise DocumentError(f"line {number} is no line of a PO file: correct it")
        keyword = match["keyword"]
        if keyword:
            ended = any(name.startswith("msgstr") for name in entry.values)
            if ended and not keyword.startswith("msgstr"):
                yield entry
                entry = _Entry()
            if keyword in entry.values:
                raise DocumentError(f"line {number} has a second {keyword}: correct it")
            last = keyword
            entry.values[last], entry.places[last] = "", []
        entry.values[last] += match["value"]
        entry.places[last].append(len(entry.lines))
        entry.lines.append(line)
    yield entry


def _translatable(document: TextDocument, entry: _Entry) -> Iterator[Part]:
    """The parts of an entry: as it is, or with a translation for each empty msgstr.

    All of these get one, or none does: of a plural with an empty form a program shows nothing.
    """
    message = _unescaped(entry.values.get("msgid", ""), document.encoding)
    plural = _unescaped(entry.values.get("msgid_plural", ""), document.encoding) or message
    is_fuzzy = any(re.match(r"#,.*\bfuzzy\b", line) for line in entry.lines)
    targets = {
        places[0]: keyword
        for keyword, places in entry.places.items()
        if keyword.startswith("msgstr") and not entry.values[keyword]
    }
    if not message or is_fuzzy or not targets:
        yield from entry.lines
        return
    rest = {i for keyword in targets.values() for i in entry.places[keyword][1:]}
    wide = max(len(line.rstrip("\r\n")) for line in entry.lines) > WIDTH + 1
    is_format = any(map(FORMAT.match, entry.lines))
    parsed: dict[str, list[Part]] = {}  # the forms of a plural share their segments
    first, last = min(targets), max(rest | set(targets))
    parts: list[Part] = []
    forms: list[Callable[[str], str]] = []  # how to write each of the parts
    for i, line in enumerate(entry.lines[first : last + 1], first):
        if i in targets:
            source = message if targets[i] in ("msgstr", "msgstr[0]") else plural
            label, sign = _without_accelerator(source)
            if source not in parsed:
                parsed[source] = list(document.plain(label, NEW_LINE))
            parts += [*parsed[source], FORM_END]
            forms.append(partial(
                _lines, keyword=targets[i], wide=wide,
                end="\r\n" if line.endswith("\r\n") else "\n",
                like=source if is_format else None, accelerator=sign,
            ))  # fmt: skip
        elif i not in rest:
            parts += [line, FORM_END]
            forms.append(str)
    raw = "".join(entry.lines[first : last + 1])
    yield from entry.lines[:first]
    yield Value(raw, parts, partial(_msgstrs, forms=forms, raw=raw))
    yield from entry.lines[last + 1 :]


def _msgstrs(text: str, forms: Sequence[Callable[[str], str]], raw: str) -> str:
    """The lines of the forms of a message, or ``raw`` if a translation has other placeholders."""
    try:
        return "".join(
            form(part) for form, part in zip(forms, text.split(FORM_END)[:-1], strict=True)
        )
    except _OtherPlaceholders as error:
        log.warning(f"{str(error)[:50]!r} stays without a translation: it had other placeholders")
        return raw


class _OtherPlaceholders(ValueError):
    """A program would read other values in a translation than in this message."""


def _directives(text: str) -> tuple[list[str], list[str]]:
    """The signs that stand for values: those in an order, and those with a name or number."""
    matches = list(DIRECTIVE.finditer(text))
    return [m[0] for m in matches if not m[1]], sorted(m[0] for m in matches if m[1])


def _unescaped(value: str, encoding: str) -> str:
    """What a program reads, with the bytes that are written as numbers in the file's encoding."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return ESCAPED.get(match[4], match[4])
        numbers = [
            int(octal, 8) if octal else int(hexadecimal, 16)
            for octal, hexadecimal in NUMBER.findall(match[1])
        ]
        return bytes(number % 256 for number in numbers).decode(encoding, "replace")

    return ESCAPE.sub(replace, value)


def _escaped(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    for letter, character in ESCAPED.items():
        text = text.replace(character, f"\\{letter}")
    return text


def _without_accelerator(text: str) -> tuple[str, str]:
    """A label without the sign before one of its letters, and the sign."""
    match = ACCELERATOR.search(text)
    label = ACCELERATOR.sub("", text, count=1)
    return (label, match[0]) if match and LABEL.fullmatch(label) else (text, "")


def _lines(
    text: str, keyword: str, wide: bool, end: str, like: str | None = None, accelerator: str = ""
) -> str:
    """A msgstr, cut into lines after line breaks and, unless the entry is ``wide``, blanks.

    Its first letter gets the ``accelerator``. Raises _OtherPlaceholders when a program would read
    other values than in ``like``.
    """
    text = re.sub(r"(?=[^\W\d_])", accelerator, text, count=1)
    if like is not None and _directives(text) != _directives(like):
        raise _OtherPlaceholders(like)
    lines: list[str] = []
    for paragraph in re.findall(r"[^\n]*\n|[^\n]+", text):
        escaped = _escaped(paragraph)
        if wide or len(escaped) + 2 <= WIDTH:
            lines.append(escaped)
            continue
        lines.append("")
        for word in re.findall(r"\S*\s+|\S+", escaped):
            if lines[-1] and len(lines[-1]) + len(word) + 2 > WIDTH:
                lines.append("")
            lines[-1] += word
    if len(lines) != 1 or (not wide and len(keyword) + 3 + len(lines[0]) > WIDTH):
        lines.insert(0, "")
    return keyword + " " + end.join(f'"{line}"' for line in lines) + end
