"""How a translation is written as Markdown: with escapes where it would become markup."""

import re

from mt.documents.document import TagKind
from mt.documents.pieces import Written
from mt.documents.text_document import write_plain

# What a translation must escape, everywhere and at the beginning of a line
MARKUP = re.compile(
    r"[\\`\[\]]|(?<!\s)\*|\*(?!\s)|~(?=~)|(?<!\w)_|_(?!\w)|<(?=[a-zA-Z/!?])|&(?=#?\w{1,32};)"
)
BEGINNING = re.compile(r"(?:[-+*]|#{1,6})(?=\s|$)|>|[-=~]+\s*$|~~~")
NUMBER = re.compile(r"(\d{1,9})(?=[.)](?:\s|$))")


def write_markdown(written: list[Written], in_table: bool) -> str:
    """A translation, in one line but for its hard breaks.

    Emphasis takes no blanks at its ends, and vanishes where nothing is in it: Markdown has
    no other way.
    """
    out: list[Written] = []
    opened: list[Written] = []  # tags that wait for a text
    blank = False  # one waits
    for part in written:
        text, tag = part
        if tag is None:
            if opened and text[0].isspace():
                text, blank = text[1:], True
            if not text:
                continue
        elif tag.kind is TagKind.OPEN:
            opened.append(part)
            continue
        elif tag.kind is TagKind.CLOSE:
            if opened and tag.name[0] in "*_~" and _name(opened[-1]) == tag.name:
                opened.pop()
                continue
            if not opened and out and out[-1].text.endswith(" ") and out[-1].tag is None:
                out[-1], blank = Written(out[-1].text[:-1]), True
        if opened or tag is None or tag.kind is TagKind.EMPTY:
            if blank and (opened or not text[0].isspace()):
                out.append(Written(" "))
            out += opened
            opened, blank = [], False
        out.append(Written(text, tag))
    return _joined(out, in_table)


def _joined(parts: list[Written], in_table: bool) -> str:
    inside_words = set()  # underlined signs that touch a letter would be text
    for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
        if part.tag and part.tag.name.startswith("_"):
            beside = before if part.tag.kind is TagKind.OPEN else after
            character = beside.text[-1:] if beside is before and beside else ""
            character = beside.text[:1] if beside is after and beside else character
            if character.isalnum():
                inside_words.add(part.tag.name)
    out: list[str] = []
    begins = not in_table  # a line
    for part, after in zip(parts, [*parts[1:], None], strict=True):
        if part.tag:
            if part.text.startswith("`") and out and out[-1].endswith("`"):
                out.append(" ")  # two spans of code would be one
            is_star = part.tag.name in inside_words
            out.append(part.text.replace("_", "*") if is_star else part.text)
            begins = part.tag.breaks and part.text.endswith((" ", "\n"))
            continue
        text = MARKUP.sub(r"\\\g<0>", part.text)
        if begins:
            text = NUMBER.sub(r"\1\\", text) if NUMBER.match(text) else text
            text = f"\\{text}" if BEGINNING.match(text) else text
        if after and after.tag and after.text.startswith("[") and text.endswith("!"):
            text = f"{text[:-1]}\\!"  # no image
        out.append(text.replace("|", "\\|") if in_table else text)
        begins = False
    return "".join(out)


def _name(part: Written) -> str:
    return part.tag.name if part.tag else ""


def write_alt(written: list[Written]) -> str:
    return MARKUP.sub(r"\\\g<0>", write_plain(written))
