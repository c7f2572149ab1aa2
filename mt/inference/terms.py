"""What the translation of a text must have and must not have, as texts; and how it is written.

``mt.inference.constraints`` has the same as ids, for the search.
"""

import itertools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from mt.data.special_ids import UNK
from mt.data.tokenizer import Tokenizer
from mt.inference.constraints import JOINERS, Constraints, TermPlace, Vocabulary
from mt.inference.forbidden import check_phrases, forbidden_pattern
from mt.inference.glossary import Glossary, Match
from mt.inference.kept import find_kept
from mt.inference.kept_verbatim import Kept
from mt.inference.number_forms import DECIMALS
from mt.utils.checks import printable

log = logging.getLogger(__name__)

SIGNS = frozenset("%{}$`")
MOST_JOINERS = 8  # characters of them that are looked at
JOINER = f"[{re.escape(''.join(sorted(JOINERS)))}]"
NO_HYPHEN = f"[{re.escape(''.join(sorted(JOINERS - {'-'})))}]"
AFTER_WORD = re.compile(rf"[^\W_]{JOINER}*\Z")
MOST_TERMS = 30  # of a sentence: each one takes a share of the beam
MOST_FORM_CHARACTERS = 20_000  # of all forms of a sentence's terms


@dataclass(frozen=True)
class Terms:
    """For one text: the forms of each term that must come, and phrases that must not come."""

    required: tuple[tuple[str, ...], ...] = ()
    forbidden: tuple[str, ...] = ()
    stray: frozenset[str] = frozenset()  # signs that must not stand outside of what is required
    is_whole_text: bool = False  # all words are kept as they are written
    spans: tuple[tuple[int, int] | None, ...] = ()  # where the text has the source of each term
    attached: frozenset[int] = frozenset()  # the terms that stand right after a word in the text
    kinds: tuple[str, ...] = ()  # of what is kept (``mt.inference.kept``); of other terms ""

    def __post_init__(self) -> None:
        check_phrases(self.forbidden)
        if isinstance(self.required, str) or any(isinstance(forms, str) for forms in self.required):
            raise ValueError(
                'required: must have the forms of each term, as (("Haus", "Gebäude"),)'
            )
        every_form = itertools.chain.from_iterable(self.required)
        if not all(self.required) or not all(isinstance(f, str) and f.strip() for f in every_form):
            raise ValueError("a term or a forbidden phrase must not be blank")
        if pattern := forbidden_pattern(self.forbidden):
            for forms in self.required:
                if all(map(pattern.search, forms)):
                    raise ValueError(f"{forms[0]!r} is required and forbidden")
        count = len(self.required)
        if len(self.spans) > count or not all(0 <= term < count for term in self.attached):
            raise ValueError("spans and attached are of terms that there are not")
        if self.kinds and len(self.kinds) != len(self.spans):
            raise ValueError("kinds must be as many as spans")


@dataclass(frozen=True)
class TermRules:
    """How terms are found in the texts that are translated.

    ``glossary`` says which words become which. With ``keep``, what ``mt.inference.kept`` finds
    stays as it is: addresses, placeholders, codes and numbers; ``decimal`` is how numbers are
    written. ``forbidden`` phrases must not come. Raises ValueError for another ``decimal``, and
    for a term of the glossary all of whose translations are forbidden. What is forbidden is not
    kept.
    """

    glossary: Glossary | None = None
    keep: bool = False
    decimal: str = "either"
    forbidden: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.glossary, Glossary | None):
            kind = type(self.glossary).__name__
            raise TypeError(f"glossary: must be a Glossary, not {kind}: see Glossary.load")
        if self.decimal not in DECIMALS:
            raise ValueError(f"decimal={self.decimal!r}: must be one of {', '.join(DECIMALS)}")
        check_phrases(self.forbidden)
        if self.glossary and (pattern := forbidden_pattern(self.forbidden)):
            for source, entry in self.glossary.entries.items():
                if all(map(pattern.search, entry.targets)):
                    message = "its translation is forbidden: leave out one of the two"
                    raise ValueError(f"{printable(source, 50)}: {message}")

    @cached_property
    def _allowed(self) -> Glossary | None:
        """The glossary without the translations that are forbidden."""
        pattern = forbidden_pattern(self.forbidden)
        return self.glossary.without(pattern) if self.glossary and pattern else self.glossary

    def __bool__(self) -> bool:
        return bool(self.glossary or self.keep or self.forbidden)

    def check_prefixes(self, prefixes: Sequence[str]) -> None:
        """Raises ValueError for a prefix with a forbidden phrase."""
        if pattern := forbidden_pattern(self.forbidden):
            for prefix in filter(pattern.search, prefixes):
                message = "is a prefix and has a forbidden phrase: leave out one of the two"
                raise ValueError(f"{printable(prefix, 50)!r} {message}")

    def of(self, text: str) -> Terms:
        """The terms of a text. What is kept comes before the words of the glossary in it.

        A term of the glossary that has all of an item comes before that: "5" or "Windows 10".
        """
        kept = find_kept(text, self.decimal) if self.keep else []
        if kept and (pattern := forbidden_pattern(self.forbidden)):
            kept = [item for item in kept if not all(map(pattern.search, item.forms))]
        matches = self._allowed.find(text) if self._allowed else []
        free = [match for match in matches if not any(_cuts(match, item) for item in kept)]
        kept = [k for k in kept if not any(m.start <= k.start and k.end <= m.end for m in free)]
        taken = [(item.start, item.end) for item in kept]
        all_forms = [*(item.forms for item in kept), *(match.forms for match in free)]
        most = slice(MOST_TERMS)
        share = MOST_FORM_CHARACTERS // max(1, len(all_forms[most]))
        required = tuple(_fitting(forms, share) for forms in all_forms[most])
        sources = [*taken, *((match.start, match.end) for match in free)]
        # The model imitates the signs of placeholders where none is.
        stray = SIGNS - set(_outside(text, taken[most])) if kept else frozenset()
        as_written = all(text[item.start : item.end] in item.forms for item in kept)
        has_words = any(map(str.isalpha, _outside(text, taken)))
        is_whole_text = self.keep and as_written and not has_words and not free
        attached = frozenset(
            number
            for number, (start, _) in enumerate(sources[most])
            if AFTER_WORD.search(text, max(0, start - MOST_JOINERS), start)
        )
        if len(all_forms) > MOST_TERMS:
            log.warning(
                f"{text.strip()[:30]!r}...: has {len(all_forms):,} terms and items to keep: the "
                f"first {MOST_TERMS} are sure to come"
            )
        kinds = (*(item.kind for item in kept), *("" for _ in free))
        return Terms(
            required,
            self.forbidden,
            stray=stray,
            is_whole_text=is_whole_text,
            spans=tuple(sources[most]),
            attached=attached,
            kinds=kinds[most],
        )


def _cuts(match: Match, item: Kept) -> bool:
    """Whether a term of the glossary lies in an item to keep, wholly or in part."""
    is_apart = match.end <= item.start or match.start >= item.end
    return not is_apart and not (match.start <= item.start and item.end <= match.end)


def _fitting(forms: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The first form, and those after it that have ``most`` characters together with it."""
    lengths = itertools.accumulate(map(len, forms))
    fitting = itertools.takewhile(lambda row: row[1] <= most, zip(forms, lengths, strict=True))
    return tuple(form for form, _ in fitting) or forms[:1]


def _outside(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """The text without spans of it, which are in order."""
    starts, ends = [start for start, _ in spans], [end for _, end in spans]
    return "".join(text[a:b] for a, b in zip([0, *ends], [*starts, len(text)], strict=True))


@lru_cache(maxsize=4096)
def _written_form(form: str, is_attached: bool, any_case: bool) -> re.Pattern[str]:
    """Finds a form as whole words, with the marks within them: no 5 in 3.5 or in 5-10.

    A part of a compound counts: 3D in 3D-Drucker, 10 in Top-10-Liste.
    """
    before = rf"(?<![^\W_])(?<![0-9]{JOINER})(?<![^\W_]{NO_HYPHEN})"
    if is_attached and not form[0].isalnum():
        before = ""
    after = rf"(?![^\W_])(?!{JOINER}[0-9])(?!{NO_HYPHEN}[^\W_])"
    if form.endswith("-"):
        after = r"(?=[^\W\d_])"
    return re.compile(before + re.escape(form) + after, re.IGNORECASE if any_case else 0)


class SearchTerms(NamedTuple):
    """The terms of an input for the search, and how they are written."""

    constraints: Constraints
    texts: list[list[str]]  # of each form of each term
    rewrite: bool  # whether a form is written in another way than its ids spell it
    stray: frozenset[str] = frozenset()  # signs that may stand in terms alone
    spans: tuple[tuple[int, int] | None, ...] = ()  # of the sources of the terms, in the text
    kinds: tuple[str, ...] = ()
    attached: frozenset[int] = frozenset()  # the terms that stand right after a word

    @property
    def are_kept(self) -> bool:
        """Whether all are items that the source has, none is of a glossary or forbidden."""
        return bool(self.kinds) and all(self.kinds) and not self.constraints.has_forbidden

    def rest_of(self, text: str, any_case: bool = False) -> str | None:
        """What a translation has beside the terms, or None where it lacks one of them.

        ``any_case``: of a text in capitals, which the model translates in small letters.
        """

        # Those that fit in the fewest places come first.
        def freedom(term: int) -> tuple[int, int]:
            return -min(map(len, self.texts[term])), len(self.texts[term])

        for term in sorted(range(len(self.texts)), key=freedom):
            is_attached = term in self.attached
            forms = sorted(dict.fromkeys(self.texts[term]), key=len, reverse=True)
            matches = (_written_form(form, is_attached, any_case).search(text) for form in forms)
            match = next(filter(None, matches), None)
            if match is None:
                return None
            text = f"{text[: match.start()]} {text[match.end() :]}"
        return text


class TermEncoder:
    """Makes the ids of terms, each once. It remembers the terms: a server drops it with a request.

    ``vocabulary`` is that of the tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        self.tokenizer, self.vocabulary = tokenizer, vocabulary
        self._encoded: dict[str, tuple[list[tuple[int, ...]], bool]] = {}

    def encode(self, terms: Terms) -> SearchTerms | None:
        """None if there is nothing to keep."""
        if not (terms.required or terms.forbidden):
            return None
        ids: list[list[tuple[int, ...]]] = []
        texts: list[list[str]] = []
        rewrite = False
        for forms in terms.required:
            form_of_ids: dict[tuple[int, ...], str] = {}
            for form in forms:
                if form not in self._encoded:
                    self._encoded[form] = self._encode(form)
                ways, is_other = self._encoded[form]
                rewrite |= is_other
                for way in ways:
                    form_of_ids.setdefault(way, form)
            ids.append(list(form_of_ids))
            texts.append(list(form_of_ids.values()))
        constraints = Constraints(self.vocabulary, ids, terms.forbidden, terms.attached)
        kinds = terms.kinds or ("",) * len(terms.spans)
        return SearchTerms(
            constraints, texts, rewrite, terms.stray, terms.spans, kinds, terms.attached
        )

    def _encode(self, form: str) -> tuple[list[tuple[int, ...]], bool]:
        """The ids of a form after a blank and after a bracket; whether they spell another text."""
        tokenizer = self.tokenizer
        after_blank, after_bracket, bracket = tokenizer.encode_target([form, f"({form}", "("])
        ways = [tuple(after_blank)]
        glued = tuple(after_bracket[len(bracket) :])
        if after_bracket[: len(bracket)] == bracket and glued and glued not in ways:
            ways.append(glued)
        ways = [way for way in ways if way]
        if not ways:
            raise ValueError(f"{form!r}: the model cannot write it")
        spelled = tokenizer.decode([list(way) for way in ways])
        return ways, UNK in after_blank or any(text != form for text in spelled)


def text_with_terms(
    ids: Sequence[int],
    terms: SearchTerms,
    tokenizer: Tokenizer,
    all_caps: bool = False,
    stray: str = "",
) -> str:
    """The text of an output in which the terms are written as they must be.

    ``all_caps``: everything is put in capitals but what is kept and words such as iPhone.
    ``stray``: signs that are left out elsewhere.
    """
    leave_out = str.maketrans("", "", stray)
    words = {i for i, kind in enumerate(terms.kinds) if not kind}  # of the glossary
    stretches: list[tuple[int, int, TermPlace | None]] = []  # its ids, and the term that they are
    position = 0
    # Of a term in another one, the longer counts.
    for place in sorted(terms.constraints.places(ids), key=lambda p: (p.start, -p.end)):
        if place.start < position:  # a term in a term
            continue
        stretches.append((position, place.start, None))
        stretches.append((place.start, place.end, place))
        position = place.end
    stretches.append((position, len(ids), None))
    text = ""
    for start, end, term in stretches:
        stretch = list(ids[start:end])
        if not stretch:
            continue
        blank = " " if tokenizer.pieces(stretch[:1])[0].startswith("▁") else ""
        if term is None:
            spelled = tokenizer.decode([stretch])[0].lstrip().translate(leave_out)
            form = spelled.upper() if all_caps else spelled
        else:
            form = terms.texts[term.term][term.form]
            if all_caps and term.term in words and not re.search("[a-zß-ÿ][A-Z]", form):
                form = form.upper()  # not iPhone
        text += blank + form
    return " ".join(text.split())
