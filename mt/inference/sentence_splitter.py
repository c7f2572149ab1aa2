"""Running text in sentences, and a sentence that is too long in clauses.

The rules are few and can be read here. A sentence ends at `.`, `!`, `?` or `…`, with closing quotes
and brackets behind it, where white space and then a capital letter, a digit or a script without
capitals follow, or in a text without capitals any letter, if neither dots nor quotes stand there;
so it does, wrongly, behind a German ordinal ("am 3. Oktober"). It does not behind an abbreviation,
a single letter ("J. Smith"), capitals with dots ("U.S. Army") or the number of a list. A fullwidth
`。`, `！` or `？` always ends one.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

# In lower case, without the last dot. Those that mostly end a sentence ("etc.") are not here: a
# capital behind them does.
ABBREVIATIONS = frozenset(
    """
    mr mrs ms messrs dr drs prof rev hon st mt jr sr gen col maj capt lt sgt cpl adm gov sen sens
    rep reps pres supt mme mlle vs cf e.g i.e viz approx ca ed eds dept
    hr hrn fr frl bzw d.h z.b u.a o.ä vgl ggf evtl inkl zzgl geb gest str mio mrd std
    """.split()  # noqa: SIM905
)
# Only before a number, for many are words as well ("No. 5", but "He said no. Then he left.").
BEFORE_NUMBERS = frozenset(
    """
    no nos vol fig figs p pp ch sec art est nr bd abb abs
    jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    """.split()  # noqa: SIM905
)
LONGEST = 40  # characters before an end mark that are looked at
_END = re.compile(
    r"(?<![.!?…])[.!?…]+[\"'”’»«“)\]]*\s+(?=[\"'“”„«»‘(\[¿¡]*(?P<next>\w))"
    r"|[。！？]+[」』”]*\s*"
)
_INITIALS = re.compile(r"[^\W\d_](\.[^\W\d_])*")  # one letter, or several with dots between
_CLAUSE = tuple(",;:–—")
_CLOSING = "\"'”’»«“)]"


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them."""
    ends = [0, *_sentence_ends(text), len(text)]
    found = [text[start:end].strip() for start, end in itertools.pairwise(ends)]
    return [sentence for sentence in found if sentence]


def is_all_caps(text: str) -> bool:
    """Whether a sentence is in capitals throughout, and more than a name or an abbreviation."""
    letters = sum(map(str.isalpha, text))
    several = len(text.split()) > 1 or text.rstrip(_CLOSING).endswith((".", "!", "?", "…"))
    return text.isupper() and letters > 3 and several


def split_points(pieces: Sequence[str], max_length: int) -> list[int]:
    """Where to end each part of a sentence's pieces so that none has more than ``max_length``.

    In the second half of what fits, behind the last sentence, or else the last clause; without
    any, between the last two words that fit, or, within a word that is too long, anywhere. The
    last end is ``len(pieces)``.
    """
    text = "".join(pieces).replace("▁", " ")
    at = [0, *itertools.accumulate(map(len, pieces))]  # where each piece begins in the text
    behind_sentences = {end - 1 for end in _sentence_ends(text)}  # the blank begins the next word
    ends = []
    start = 0
    while len(pieces) - start > max_length:
        last = start + max_length
        words = [i for i in range(last, start, -1) if pieces[i].startswith("▁")]
        late = [i for i in words if i > start + max_length // 2]
        choices = (
            next((i for i in late if at[i] in behind_sentences), None),
            next((i for i in late if _ends_clause(text[at[start] : at[i]])), None),
        )
        start = next((i for i in choices if i is not None), words[0] if words else last)
        ends.append(start)
    return [*ends, len(pieces)]


def _sentence_ends(text: str) -> Iterator[int]:
    """Where the next sentence begins, for each but the last."""
    start, small = 0, text.islower()
    for mark in _END.finditer(text):
        before = text[max(start, mark.start() - LONGEST) : mark.start() + 1]
        first = mark.start() - LONGEST <= start
        if small and _goes_on(mark, before):
            continue
        following = mark["next"]
        if following is None or _ends(before, first, following.upper() if small else following):
            start = mark.end()
            yield start


def _goes_on(mark: re.Match[str], before: str) -> bool:
    """Whether in a text without capitals a sentence goes on behind a mark that ends most."""
    word = before[:-1].rsplit(maxsplit=1)[-1:]
    return (
        "..." in mark[0]
        or "…" in mark[0]
        or mark[0].strip()[-1] in _CLOSING
        or (before.endswith(".") and word != [] and ("." in word[0] or word[0] == "etc"))
    )


def _ends(text: str, first: bool, following: str) -> bool:
    """Whether a sentence is at its end with ``text`` when ``following`` comes behind it.

    ``text`` are the last characters up to the first end mark, the whole sentence if ``first``.
    """
    if following.islower():
        return False
    if not text.endswith("."):
        return True
    words = text[:-1].rsplit(maxsplit=1)
    last = words[-1].lstrip("\"'“”„«»‘([") if words else ""
    if last.lower() in ABBREVIATIONS or (last.lower() in BEFORE_NUMBERS and following.isdigit()):
        return False
    if _INITIALS.fullmatch(last) and last.upper() != "I" and (len(last) == 1 or last.isupper()):
        return False
    return not (first and len(words) == 1 and last.isdigit())  # "1. A list"


def _ends_clause(text: str) -> bool:
    return text.rstrip(_CLOSING).endswith(_CLAUSE)
