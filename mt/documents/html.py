"""HTML and XML whose text is translated and whose tags, comments and code stay as they are."""

import codecs
import html
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from mt.documents.cp1252 import WEB_CP1252
from mt.documents.document import DocumentError, TagKind, is_note_mark
from mt.documents.pieces import Part, Piece, Value, Written
from mt.documents.text_document import BYTE_ORDER_MARKS, TextDocument, decode
from mt.documents.text_lines import line_parts

# Elements that do not cut a sentence; every other tag does.
INLINE = frozenset((
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "data", "del", "dfn", "em",
    "font", "g", "i", "img", "input", "ins", "label", "mark", "nobr", "q", "s", "small", "span",
    "strike", "strong", "sub", "sup", "time", "tt", "u", "wbr", "x"
))  # fmt: skip
# Elements that stay with all that is in them; in a sentence they are one word of it.
CODE = frozenset(("code", "kbd", "math", "samp", "var"))
VERBATIM = CODE | {"svg"}
# Those that are no part of a sentence
VERBATIM_BLOCKS = frozenset(("pre", "template"))
# Elements that hold no tags; their end tag alone ends them.
RAW = frozenset((
    "iframe", "noembed", "noframes", "script", "style", "textarea", "xmp"
))  # fmt: skip
# Elements whose end tag may be left out, and the start tags that end them then
# (HTML, "Optional tags")
CELLS = frozenset(("td", "th", "tr", "tbody", "tfoot"))
ENDED_BY = {
    "li": frozenset(("li",)),
    **dict.fromkeys(("dt", "dd"), frozenset(("dt", "dd"))),
    **dict.fromkeys(("option", "optgroup"), frozenset(("option", "optgroup", "hr"))),
    **dict.fromkeys(("td", "th"), CELLS),
    "tr": CELLS - {"td", "th"},
    **dict.fromkeys(("thead", "tbody", "tfoot"), frozenset(("tbody", "tfoot"))),
    "p": frozenset((
        "address", "article", "aside", "blockquote", "details", "dialog", "div", "dl", "fieldset",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
        "hgroup", "hr", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "table", "ul",
        "dd", "dt", "li", "thead", *CELLS,  # which end what is around it
    )),
}  # fmt: skip
# Elements without an end tag
VOID = frozenset((
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr"
))  # fmt: skip
ATTRIBUTES = frozenset(("alt", "aria-label", "placeholder", "title"))
DESCRIPTIONS = frozenset((  # <meta name=... content="a text">
    "description", "og:description", "og:title", "twitter:description", "twitter:title"
))  # fmt: skip
LABELLED = frozenset(("optgroup", "track"))  # <optgroup label="a text">
BUTTONS = frozenset(("button", "reset", "submit"))  # <input type=... value="a text">

# Not html.parser, which takes quadratic time for broken tags and changes end tags. A tag has no
# part that can fail after its name, and where it does not close the search goes on after it:
# the time is linear.
TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z)) | <!\[CDATA\[.*?(?:\]\]>|\Z) | <\?(?:php|xml|=).*?(?:\?>|\Z)
    | <%.*?(?:%>|\Z)  # of a template
    | <!DOCTYPE[^<>\[]*\[.*?(?:\]\s*>|\Z) | <[!?][^<>]*>
    | <(?P<end>/?)(?P<tag>[a-z][^\s/<>]*)
      (?P<attributes>(?:[^<>"'=]+|=\s*"[^"]*"|=\s*'[^']*'|["'=])*)(?P<closed>>?)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
ATTRIBUTE = re.compile(
    r"""([^\s=<>/"'][^\s=<>/]*)(?:\s*=\s*(?P<value>"[^"]*"|'[^']*'|[^\s"'<>=`]+))?"""
)
MOST_ATTRIBUTES = 10_000  # of a tag, that are looked at
ORDINAL = re.compile(r"<sup(?:\s[^<>]*)?>\s*((?:st|nd|rd|th)\s*)</sup\s*>", re.IGNORECASE)
SUPERSCRIPT_END = re.compile(r"</sup\s*>", re.IGNORECASE)
MOST_MARK_MARKUP = 500  # characters in a superscript that are looked at
MOST_DEPTH = 100  # elements in one another that an end tag may end at once
BLANK = re.compile(r"\s|&nbsp;|&\#160;|&\#xa0;", re.IGNORECASE)
HUGE_NUMBER = re.compile(r"&#(?:[0-9]{1000,}|[xX][0-9a-fA-F]{1000,});?")
CHARSET = re.compile(
    rb"""<meta\s[^<>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})
    | <\?xml\s[^<>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})""",
    re.VERBOSE | re.IGNORECASE,
)
# Of Python's codecs those that are no transformation and decode in linear time
ENCODINGS = re.compile(
    r"utf-8|cp125\d|cp866|cp874|iso8859-\d+|koi8-[rut]|mac-roman|gb2312|gbk|gb18030|big5|big5hkscs"
    r"|shift_jis|cp932|euc_jp|euc_kr|cp949"
)


class HtmlDocument(TextDocument):
    """A page. Broken markup is no error: what is no tag is text.

    A segment is what lies between two tags that cut a sentence, or an attribute's text. The
    elements of ``ignored_tags`` stay as they are, as those with ``translate="no"`` do. In XML, as
    which a text with an XML declaration counts too, ``/>`` ends any element.
    """

    def __init__(
        self,
        text: str,
        ignored_tags: Sequence[str] = (),
        encoding: str = "utf-8",
        mark: bytes = b"",
        is_xml: bool = False,
    ) -> None:
        errors = WEB_CP1252 if encoding == "cp1252" else "xmlcharrefreplace"
        super().__init__(encoding, mark, errors)
        is_xml = is_xml or text[:100].lstrip().startswith("<?xml")
        ignored = frozenset(tag.lower() for tag in ignored_tags)
        self.parts = html_parts(self, text, ignored, is_xml)

    @classmethod
    def from_bytes(cls, data: bytes, is_xml: bool = False) -> "HtmlDocument":
        """Raises DocumentError if the bytes are not in the encoding that they declare."""
        encoding = _declared(data)
        try:
            text, encoding, mark = decode(data, encoding)
        except DocumentError:
            if encoding != "cp1252":
                raise
            text, encoding, mark = decode(data, encoding, WEB_CP1252)
        return cls(text, (), encoding, mark, is_xml)


def html_parts(
    document: TextDocument, text: str, ignored: frozenset[str] = frozenset(), is_xml: bool = False
) -> list[Part]:
    """The parts of a page, whose segments ``document`` gets."""
    return _PageReader(document, text, ignored, is_xml).read()


class _PageReader:
    """Reads a page from its first tag to its last one."""

    def __init__(
        self, document: TextDocument, text: str, ignored: frozenset[str], is_xml: bool
    ) -> None:
        self.document, self.text, self.is_xml = document, text, is_xml
        self.verbatim = VERBATIM | VERBATIM_BLOCKS | ignored
        self.parts: list[Part] = []
        self.run: list[Piece] = []  # of the paragraph that is read
        self.start = 0  # of text that was not yet taken
        self.position = 0  # after the last tag
        self.language = ""  # of the page, if it says so

    def read(self) -> list[Part]:
        while match := TOKEN.search(self.text, self.position):
            self.position = match.end()
            if match["tag"] and not match["closed"]:
                continue  # text, such as a < b
            self.document.check_count(len(self.run))
            self.run.extend(html_text(self.text[self.start : match.start()]))
            self.start = self.position
            tag = (match["tag"] or "").lower()
            if tag == "sup" and (ordinal := self._ordinal_at(match)):
                self.start = self.position = ordinal.end()
                self.run.append(Piece((ordinal[0],), ordinal[1]))
            elif not tag:
                is_noun = match[0].startswith(("<%=", "<?="))  # which write a value
                self.run.append(Piece((match[0],), kind=TagKind.EMPTY, is_noun=is_noun))
            elif not match["end"]:
                self._begin_element(match, tag)
            elif tag in INLINE and tag not in VOID:
                self.run.append(Piece((match[0],), kind=TagKind.CLOSE, name=tag))
            else:
                self._cut(match[0])
        self.run.extend(html_text(self.text[self.start :]))
        self._cut()
        return self.parts

    def _ordinal_at(self, tag: re.Match[str]) -> re.Match[str] | None:
        """The raised letters of 1st, which German does not have, after their digit."""
        texts = (piece.text for piece in reversed(self.run) if piece.kind != TagKind.CLOSE)
        is_after_digit = next(texts, "")[-1:].isdigit()
        return ordinal_at(tag) if is_after_digit and "sup" not in self.verbatim else None

    def _begin_element(self, match: re.Match[str], tag: str) -> None:
        """Take the tag that begins an element, or the whole element if it stays as it is."""
        verbatim = self.verbatim
        attributes = attributes_of(match["attributes"])
        language = _language(attributes)
        if tag == "html":
            self.language = language
        is_foreign = "" not in (language, self.language) and language != self.language
        keep = is_kept(attributes) or is_foreign
        closed = match["attributes"].endswith("/")
        alone = tag in VOID or closed
        is_raw = tag in RAW and not (self.is_xml and closed)
        mark_end = note_mark_end(match) if tag == "sup" else None
        if mark_end or is_raw or (not alone and (tag in verbatim or keep)):
            end = mark_end or verbatim_end(self.text, tag, self.position, self.is_xml)
            self.start = self.position = end
            raw: list[Part] = [self.text[match.start() : end]]
            if (mark_end or is_raw) and not keep:
                raw = [*start_tag(self.document, match), self.text[match.end() : end]]
            alone = alone or mark_end is not None
        else:
            raw = [match[0]] if keep else start_tag(self.document, match)
        if tag == "a" and _ends_in_link(self.run):
            self._cut()
        if tag not in INLINE and (tag not in verbatim or tag in VERBATIM_BLOCKS):
            self._cut(*raw)
            return
        is_open = not alone and tag not in verbatim and not keep
        is_noun = (tag in CODE or (keep and mark_end is None)) and has_text(match, self.position)
        kind = TagKind.OPEN if is_open else TagKind.EMPTY
        piece = Piece(tuple(raw), kind=kind, name=tag, breaks=tag == "br", is_noun=is_noun)
        if piece.breaks and _ends_in_break(self.run):  # an empty line ends a paragraph
            self._cut(*raw)
        else:
            self.run.append(piece)

    def _cut(self, *raw: Part) -> None:
        """End the paragraph; ``raw`` comes after it."""
        self.parts.extend(line_parts(self.document, self.run, write_html))
        self.parts.extend(raw)
        self.run.clear()


def start_tag(document: TextDocument, match: re.Match[str]) -> list[Part]:
    """The parts of a start tag, a match of TOKEN: texts that people read are segments."""
    attributes = {name: _value(value) for name, value in attributes_of(match["attributes"]).items()}
    names = set(ATTRIBUTES)
    if match["tag"].lower() == "meta":
        described = attributes.get("name", "").lower() in DESCRIPTIONS
        if described or attributes.get("property", "").lower() in DESCRIPTIONS:
            names.add("content")
    if match["tag"].lower() == "input" and attributes.get("type", "").lower() in BUTTONS:
        names.add("value")
    if match["tag"].lower() in LABELLED:
        names.add("label")
    if names.isdisjoint(attributes):
        return [match[0]]
    parts: list[Part] = []
    position, offset = match.start(), match.start("attributes")
    for attribute in ATTRIBUTE.finditer(match["attributes"]):
        name, value = attribute[1].lower(), attribute["value"]
        if name not in names or not value:
            continue
        names.remove(name)  # a second one does not count
        inner = list(document.run(html_text(_value(value)), write_html))
        start, end = (offset + at for at in attribute.span("value"))
        quoted = partial(_quoted, quote="'" if value[0] == "'" else '"')
        parts += [match.string[position:start], Value(value, inner, quoted)]
        position = end
    return [*parts, match.string[position : match.end()]]


def html_text(raw: str) -> Iterator[Piece]:
    """A text with entities, with the blanks at both ends as pieces of their own."""
    start, end = 0, len(raw)
    while match := BLANK.match(raw, start):
        start = match.end()
    while end > start and (raw[end - 1].isspace() or raw.endswith(("&nbsp;", "&#160;"), 0, end)):
        end -= 1 if raw[end - 1].isspace() else 6
    for part in (raw[:start], raw[start:end], raw[end:]):
        if part:
            yield Piece((part,), unescape(part))


def unescape(raw: str) -> str:
    """``html.unescape``, which raises ValueError for numbers of thousands of digits."""
    return html.unescape(HUGE_NUMBER.sub("\N{REPLACEMENT CHARACTER}", raw)) if "&" in raw else raw


def write_html(written: list[Written]) -> str:
    return "".join(
        part.text if part.tag else html.escape(part.text, quote=False) for part in written
    )


def attributes_of(raw: str) -> dict[str, str]:
    """The values of the attributes, with their quotes; of each the first counts."""
    values: dict[str, str] = {}
    for match in islice(ATTRIBUTE.finditer(raw), MOST_ATTRIBUTES):
        values.setdefault(match[1].lower(), match["value"] or "")
    return values


def _value(raw: str) -> str:
    return raw[1:-1] if raw[:1] in ('"', "'") else raw


def _quoted(value: str, quote: str) -> str:
    escaped = value.replace(quote, "&#39;" if quote == "'" else "&quot;")
    return f"{quote}{escaped}{quote}"


def is_kept(attributes: dict[str, str]) -> bool:
    """Whether an element with these attributes stays as it is."""
    if "translate" not in attributes and "class" not in attributes:
        return False
    translate = _value(attributes.get("translate", "")).strip().lower()
    return translate == "no" or "notranslate" in _value(attributes.get("class", "")).split()


def ordinal_at(tag: re.Match[str]) -> re.Match[str] | None:
    """The element of a tag, a match of TOKEN, if it has the raised letters of 1st."""
    if is_kept(attributes_of(tag["attributes"])):
        return None
    return ORDINAL.match(tag.string, tag.start())


def _language(attributes: dict[str, str]) -> str:
    """The code of the language of an element, without its region; nothing if it has none."""
    value = _value(attributes.get("lang") or attributes.get("xml:lang", ""))
    return value.strip().lower().partition("-")[0]


def verbatim_end(text: str, tag: str, position: int, is_xml: bool = False) -> int:
    """Where the element ``tag`` ends whose start tag ends at ``position``."""
    if tag in RAW:
        end_tag = re.compile(rf"</{tag}(?=[\s/>])", re.IGNORECASE).search(text, position)
        return end_tag.start() if end_tag else len(text)
    if tag in ENDED_BY and not is_xml:
        return _optional_end(text, tag, position)
    depth = 1
    while depth and (match := TOKEN.search(text, position)):
        position = match.end()
        if match["closed"] and match["tag"].lower() == tag:
            if match["end"]:
                depth -= 1
            elif not match["attributes"].endswith("/"):
                depth += 1
    return len(text) if depth else position


def _optional_end(text: str, tag: str, position: int) -> int:
    """Where an element ends that needs no end tag: at the latest, where the one around it does."""
    inside: list[str] = []  # the elements in it that have begun, without those of a sentence
    while match := TOKEN.search(text, position):
        position = match.end()
        name = (match["tag"] or "").lower()
        if not name or not match["closed"] or name in INLINE:
            continue
        if match["end"]:
            if name not in inside[-MOST_DEPTH:]:
                return position if name == tag and not inside else match.start()
            while inside.pop() != name:
                pass
        else:
            while inside and name in ENDED_BY.get(inside[-1], ()):
                inside.pop()
            if not inside and name in ENDED_BY[tag]:
                return match.start()
            if name not in VOID and not match["attributes"].endswith("/"):
                inside.append(name)
    return len(text)


def note_mark_end(tag: re.Match[str]) -> int | None:
    """Where a superscript ends that begins with ``tag`` and is the mark of a note, or None."""
    near = tag.string[tag.end() : tag.end() + MOST_MARK_MARKUP]
    end = SUPERSCRIPT_END.search(near)
    if tag["attributes"].endswith("/") or end is None:
        return None
    mark = unescape(TOKEN.sub("", near[: end.start()]))
    return tag.end() + end.end() if is_note_mark(mark) else None


def has_text(tag: re.Match[str], end: int) -> bool:
    """Whether the element has a text that begins with ``tag`` and goes to ``end``."""
    return TOKEN.sub("", tag.string[tag.end() : end]).strip() != ""


def _ends_in_break(run: list[Piece]) -> bool:
    last = _last(run)
    return last is not None and last.breaks


def _ends_in_link(run: list[Piece]) -> bool:
    """Links without a word between them are those of a menu, not of a sentence."""
    last = _last(run)
    return last is not None and last.kind is TagKind.CLOSE and last.name == "a"


def _last(run: list[Piece]) -> Piece | None:
    return next((piece for piece in reversed(run) if piece.kind or piece.text.strip()), None)


def _declared(data: bytes) -> str:
    """Python's name of the encoding in a page's ``<meta>``, else UTF-8."""
    if any(data.startswith(mark) for mark, _ in BYTE_ORDER_MARKS):
        return "utf-8"
    charset = CHARSET.search(data[:4096])
    if charset is None:
        return "utf-8"
    label = (charset[1] or charset[2]).decode("ascii", "replace")
    try:
        name = codecs.lookup(label).name
    except LookupError:
        return "utf-8"
    if name in ("ascii", "iso8859-1"):  # as browsers do
        return "cp1252"
    return name if ENCODINGS.fullmatch(name) else "utf-8"
