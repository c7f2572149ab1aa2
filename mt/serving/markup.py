"""HTML and XML whose text is translated and whose tags, comments and code stay as they are."""

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Elements that do not cut a sentence; every other tag does.
INLINE = frozenset((
    "a", "abbr", "b", "bdi", "bdo", "big", "cite", "data", "del", "dfn", "em", "font", "g", "i",
    "ins", "label", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup", "time",
    "tt", "u", "x"
))  # fmt: skip
VERBATIM = frozenset((
    "pre", "code", "kbd", "samp", "var", "svg", "math", "template"
))  # fmt: skip
# Elements without an end tag
VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr"
))  # fmt: skip
MOST_PARTS = 50  # of a sentence with inline elements; the search for them grows with its square

# Not html.parser, which takes quadratic time for broken tags and changes end tags.
MARKUP = re.compile(
    r"""<!--.*?(?:-->|\Z) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <[!?][^<>]*>
    | <(?P<raw>script|style|textarea)\b.*?(?:</(?P=raw)\s*>|\Z)
    | <(?P<end>/?)(?P<tag>[a-z][^\s/<>]*)
      (?P<attributes>(?:[^<>"']|"[^"]{0,2000}"|'[^']{0,2000}')*)>""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
KEEP = re.compile(
    r"""\btranslate\s*=\s*["']?no\b | \bclass\s*=\s*["']?[^"'>]{0,500}\bnotranslate\b""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass
class _Item:
    """A tag, a comment or the text between two of them; ``raw`` is as the document has it."""

    raw: str
    text: str = ""  # what is to be read, if it is text to translate
    cuts: bool = False  # a tag that ends a sentence
    marked: bool = False  # text inside an inline element

    @property
    def has_letters(self) -> bool:
        return any(map(str.isalpha, self.text))


class Markup:
    """A document. ``texts`` are to be translated; ``render`` puts their translations in.

    A sentence goes to the model as a whole, also where an inline element such as ``<b>`` marks a
    part of it. The marked part is translated a second time alone: where the translation of the
    whole has these words, they are marked. Where it has not, the parts between the tags are
    translated one by one. Broken markup is no error: what is no tag is text.
    """

    def __init__(self, document: str, ignored_tags: Sequence[str] = ()) -> None:
        self._items = list(_items(document, VERBATIM | {tag.lower() for tag in ignored_tags}))
        self._runs = [run for run in _runs(self._items) if any(i.has_letters for i in run)]
        self.texts = [text for run in self._runs for text in _texts(run)]

    def render(self, translations: Sequence[str]) -> str:
        """The document with ``translations``, one for each of ``texts``."""
        remaining = iter(translations)
        for run in self._runs:
            whole, *parts = [next(remaining) for _ in _texts(run)]
            pieces = _place(run, whole, parts) if parts else None
            if pieces:  # the blanks are in the pieces, except at both ends
                pieces[0] = _margins(run[0].text)[0] + pieces[0].lstrip()
                pieces[-1] = pieces[-1].rstrip() + _margins(run[-1].text)[1]
            else:
                alone = iter(parts or [whole])
                pieces = [_between_margins(i, next(alone)) if i.has_letters else i.text
                          for i in run]  # fmt: skip
            for item, piece in zip(run, pieces, strict=True):
                item.raw = html.escape(piece, quote=False)
        return "".join(item.raw for item in self._items)


def _texts(run: list[_Item]) -> list[str]:
    """The text of a run and, if several items have text, the texts of those with letters."""
    parts = [" ".join(item.text.split()) for item in run if item.has_letters]
    whole = " ".join("".join(item.text for item in run).split())
    return parts if parts == [whole] else [whole, *parts]


def _margins(text: str) -> tuple[str, str]:
    """The blanks with which a text begins and ends; one that is all blank only begins."""
    stripped = text.lstrip()
    return text[: len(text) - len(stripped)], stripped[len(stripped.rstrip()) :]


def _between_margins(item: _Item, translation: str) -> str:
    before, after = _margins(item.text)
    if not item.text.rstrip().endswith((".", "!", "?")):  # the model likes to end a sentence
        translation = translation.removesuffix(".")
    return before + translation + after


def _place(run: list[_Item], whole: str, parts: list[str]) -> list[str] | None:
    """The translation of a run, cut into a piece for each item; None if that is not possible.

    The pieces of unmarked items are what lies between those of the marked ones.
    """
    if len(parts) > MOST_PARTS:
        return None
    translated = iter(parts)
    pieces: list[str] = []
    position, is_open = 0, False  # is_open: an unmarked item waits for its end
    for item in run:
        part = next(translated) if item.has_letters else ""
        if not item.marked:
            if is_open:
                return None
            pieces.append("")
            is_open = True
            continue
        found = list(re.finditer(rf"(?<!\w){re.escape(part.rstrip('.'))}(?!\w)", whole, re.I))
        if not part or len(found) != 1 or found[0].start() < position:
            return None
        between = whole[position : found[0].start()]
        if is_open:
            pieces[-1] = between
        elif between.strip():
            return None
        pieces.append(found[0].group())
        position, is_open = found[0].end(), False
    if is_open:
        pieces[-1] = whole[position:]
    elif whole[position:].strip():
        return None
    return pieces


def _runs(items: list[_Item]) -> Iterator[list[_Item]]:
    """The texts between two tags that end a sentence."""
    run: list[_Item] = []
    for item in items:
        if item.cuts:
            yield run
            run = []
        elif item.text:
            run.append(item)
    yield run


def _items(document: str, verbatim: frozenset[str]) -> Iterator[_Item]:
    """The document in pieces, which joined are the document."""
    inside, depth = "", 0  # an element whose content stays, and how often it is open in itself
    inline = position = 0  # inline: elements that are open
    for match in MARKUP.finditer(document):
        yield from _text(document[position : match.start()], inside, inline)
        position = match.end()
        tag = (match["tag"] or "").lower()
        starts = bool(tag) and not match["end"] and not match["attributes"].endswith("/")
        if inside:
            depth += ((1 if starts else -1) if starts or match["end"] else 0) * (tag == inside)
            inside = inside if depth else ""
            cuts = True
        elif starts and tag not in VOID and (tag in verbatim or KEEP.search(match["attributes"])):
            inside, depth, cuts = tag, 1, True
        else:
            cuts = bool(tag or match["raw"]) and tag not in INLINE
            if tag in INLINE and (starts or match["end"]):
                inline = max(0, inline + (1 if starts else -1))
        if cuts:
            inline = 0  # a forgotten end tag ends with its paragraph
        yield _Item(match[0], cuts=cuts)
    yield from _text(document[position:], inside, inline)


def _text(raw: str, inside: str, inline: int) -> Iterator[_Item]:
    if raw:
        yield _Item(raw, "" if inside else html.unescape(raw), bool(inside), inline > 0)
