"""Split running text into sentences, and a sentence that is too long into clauses.

A sentence ends at `.`, `!`, `?` or `…`, with any closing quotes and brackets, if white space
follows and then a capital letter, a digit or a letter of a script without capitals. In a text
without capitals any letter may follow, but then three dots, closing quotes and dotted
abbreviations end no sentence. A fullwidth `。`, `！` or `？` always ends one. A period ends no
sentence after an abbreviation, a single letter ("J. Smith"), capitals with dots ("U.S. Army") or
the number of a list. It wrongly ends one after a German ordinal ("am 3. Oktober").
"""

import itertools
import re
from collections.abc import Iterator, Sequence

# In lower case, without the last dot. Words that mostly end a sentence ("etc.") are missing: they
# end one when a capital follows.
ABBREVIATIONS = frozenset(
    """
    mr mrs ms messrs dr drs prof rev hon st mt jr sr gen col maj capt lt sgt cpl adm gov sen sens
    rep reps pres supt mme mlle vs cf e.g i.e viz approx ca ed eds dept
    hr hrn fr frl bzw d.h z.b u.a o.ä vgl ggf evtl inkl zzgl geb gest str mio mrd std
    """.split()  # noqa: SIM905
)
# Abbreviations only before a number ("No. 5", but "He said no. Then he left.").
BEFORE_NUMBERS = frozenset(
    """
    no nos vol fig figs p pp ch sec art est al eq eqs tel ext max min ver pt nr bd abb abs
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    """.split()  # noqa: SIM905
)
MAX_CONTEXT = 40  # characters before an end mark that decide about it
_END = re.compile(
    r"(?<![.!?…])[.!?…]+[\"'”’»«“)\]]*\s+(?=[\"'“”„«»‘(\[¿¡]*(?P<next>\w))"
    r"|[。！？]+[」』”]*\s*"
)
# What a line may begin with: "    - ", "3. ", "b) ", "[x] "
_LAYOUT = re.compile(
    r"[ \u00a0]*(?:(?:[-+*>•·▪‣–—]|[0-9]{1,3}[.)]|[A-Za-z]\)|\[[ xX]?\])[ \u00a0]+)*"
)
_INITIALS = re.compile(r"[^\W\d_](\.[^\W\d_])*")  # one letter, or several with dots between
_CLAUSE = tuple(",;:–—")
_CLOSING = "\"'”’»«“)]"
_NOT_FIRST = ("<0x8", "<0x9", "<0xA", "<0xB")  # how pieces begin that are a character's later bytes


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them."""
    bounds = [0, *_sentence_ends(text), len(text)]
    stripped = [text[start:end].strip() for start, end in itertools.pairwise(bounds)]
    return [sentence for sentence in stripped if sentence]


def sentences_of_line(line: str) -> list[tuple[str, str]]:
    """The sentences of a line as people type it, each after what stands before it.

    That is a blank, or the layout that is no text: indentation, the sign or number of a list, and
    tabs, which end a sentence.
    """
    rows: list[tuple[str, str]] = []
    before = ""
    cells = line.rstrip().split("\t")
    for number, cell in enumerate(cells, 1):
        before += "\t" if number > 1 else ""
        layout = _LAYOUT.match(f"{cell} ") if not rows else None
        if layout and layout.end() > len(cell) and number < len(cells):  # a sign before a tab
            before += cell
            continue
        start = layout.end() if layout and cell[layout.end() :].strip() else 0
        for sentence in sentences(cell[start:]):
            rows.append((before + cell[:start], sentence))
            before, start = " ", 0
        before = before if before != " " else ""
    return rows


def is_all_caps(text: str) -> bool:
    """Whether a sentence is in capitals throughout, and more than a name or an abbreviation."""
    letters = sum(map(str.isalpha, text))
    is_sentence = len(text.split()) > 1 or text.rstrip(_CLOSING).endswith((".", "!", "?", "…"))
    return text.isupper() and letters > 3 and is_sentence


def chunks(text: str, size: int) -> list[str]:
    """A text in chunks of at most ``size`` characters, mostly the text alone.

    A chunk ends after the last sentence, if that ends in its second half, or else after a word;
    within a word that is too long, anywhere.
    """
    if len(text) > size:
        text = " ".join(text.split())
    parts, start = [], 0
    while len(text) - start > size:
        chunk = text[start : start + size]
        ends = [end for end in _sentence_ends(chunk) if end > size // 2]
        parts.append(chunk[: ends[-1] if ends else chunk.rfind(" ") + 1 or size])
        start += len(parts[-1])
    return [*parts, text[start:]]


def split_points(pieces: Sequence[str], max_length: int) -> list[int]:
    """Where to end each segment of a sentence so that none has more than ``max_length`` pieces.

    A segment ends in the second half of what fits, after the last sentence or else after the last
    clause; without either, between the last two words that fit; within a word that is too long,
    after any character. The last of the ends is ``len(pieces)``.
    """
    text = "".join(pieces).replace("▁", " ")
    offsets = [0, *itertools.accumulate(map(len, pieces))]  # where each piece begins in the text
    after_sentences = {end - 1 for end in _sentence_ends(text)}  # the blank begins the next word
    ends = []
    start = 0
    while len(pieces) - start > max_length:
        last = start + max_length
        words = [i for i in range(last, start, -1) if pieces[i].startswith("▁")]
        second_half = [i for i in words if i > start + max_length // 2]
        candidates = (
            next((i for i in second_half if offsets[i] in after_sentences), None),
            next((i for i in second_half if _ends_clause(text[offsets[start] : offsets[i]])), None),
        )
        near = range(last, max(start, last - 4), -1)  # a character has at most four bytes
        within = next((i for i in near if not pieces[i].startswith(_NOT_FIRST)), last)
        start = next((i for i in candidates if i is not None), words[0] if words else within)
        ends.append(start)
    return [*ends, len(pieces)]


def _sentence_ends(text: str) -> Iterator[int]:
    """Where the next sentence begins, for each sentence but the last."""
    start, lower_case = 0, text.islower()
    for mark in _END.finditer(text):
        context_start = mark.start() - MAX_CONTEXT
        before = text[max(start, context_start) : mark.start() + 1]
        if lower_case and _continues(mark, before):
            continue
        following = mark["next"] and (mark["next"].upper() if lower_case else mark["next"])
        if following is None or _is_end(before, context_start <= start, following):
            start = mark.end()
            yield start


def _continues(mark: re.Match[str], before: str) -> bool:
    """Whether a sentence in a text without capitals continues after a mark that ends most."""
    word = before[:-1].rsplit(maxsplit=1)[-1:]
    return (
        "..." in mark[0]
        or "…" in mark[0]
        or mark[0].strip()[-1] in _CLOSING
        or (before.endswith(".") and word != [] and ("." in word[0] or word[0] == "etc"))
    )


def _is_end(before: str, is_whole: bool, following: str) -> bool:
    """Whether a sentence ends with ``before`` when the letter or digit ``following`` comes next.

    ``before`` has its last characters up to the first end mark; ``is_whole``: it has all of them.
    """
    if following.islower():
        return False
    if not before.endswith("."):
        return True
    words = before[:-1].rsplit(maxsplit=1)
    last = words[-1].lstrip("\"'“”„«»‘([") if words else ""
    if last.lower() in ABBREVIATIONS or (last.lower() in BEFORE_NUMBERS and following.isdigit()):
        return False
    if _INITIALS.fullmatch(last) and last.upper() != "I" and (len(last) == 1 or last.isupper()):
        return False
    return not (is_whole and len(words) == 1 and last.isdigit())  # "1. A list"


def _ends_clause(text: str) -> bool:
    return text.rstrip(_CLOSING).endswith(_CLAUSE)
