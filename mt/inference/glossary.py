"""Glossaries: which word of the target language a word of the source language must become.

The files are tables of tab-separated values, the comma-separated ones that DeepL takes, and TBX
(ISO 30042), the XML of terminology programs.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from mt.utils.checks import printable
from mt.utils.json_io import read_regular

MOST_BYTES = 20 * 2**20
MOST_FORMS = 100  # of a term
MOST_CHARACTERS = 500  # of a term
# What the first row of a table may say of its columns: it is no term.
HEADERS = (("source", "target"), ("src", "tgt"), ("term", "translation"))
NAMES = {"en": ("en", "english", "englisch"), "de": ("de", "german", "deutsch")}
TOKEN = re.compile(r"\w+|[^\w\s]")
STRAIGHT = str.maketrans("’‘“”", "''\"\"")  # quotation marks and apostrophes, which match alike
# What German nouns and adjectives add for case, number and gender, the word as it is first.
ENDINGS = ("", "e", "en", "er", "es", "em", "n", "s", "ern")
AFTER_E = ("", "n", "r", "s", "m")  # of an adjective or a noun that ends with e
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


class Entry(NamedTuple):
    """``source`` becomes one of ``targets``, the preferred one first."""

    source: str
    targets: tuple[str, ...]


class Match(NamedTuple):
    """Characters ``start`` to ``end`` of a text are a source term, which has these ``forms``."""

    start: int
    end: int
    forms: tuple[str, ...]


class _Terms(dict[str, "_Terms"]):
    """Terms by their tokens: those that go on with a token, and the targets of what ends here."""

    targets: tuple[str, ...] = ()


class Glossary:
    """Entries that are looked up in texts.

    A source term that has a capital letter is found as it is written, another one in any case, and
    with the ending of a plural. ``entries`` have each source term with its translation, or with
    several of which one must come. With ``inflect`` a target term may have the endings of German
    nouns and adjectives. Entries of one source term are alternatives. Raises ValueError for a term
    that is blank or very long.
    """

    def __init__(
        self,
        entries: Mapping[str, str | Iterable[str]] | Iterable[tuple[str, str | Iterable[str]]],
        inflect: bool = True,
    ) -> None:
        self.inflect = inflect
        self.entries: dict[str, Entry] = {}
        self._as_written, self._in_any_case = _Terms(), _Terms()
        for source, targets in entries.items() if isinstance(entries, Mapping) else entries:
            source = " ".join(source.split())
            several = [targets] if isinstance(targets, str) else targets
            translations = tuple(" ".join(target.split()) for target in several)
            if not source:
                raise ValueError("a term to be translated is blank")
            if not translations or not all(translations):
                raise ValueError(f"{source}: a term must have a translation")
            if max(map(len, (source, *translations))) > MOST_CHARACTERS:
                message = f"a term has at most {MOST_CHARACTERS} characters"
                raise ValueError(f"{printable(source, 50)}: {message}")
            before = self.entries.get(source, Entry(source, ()))
            self.entries[source] = Entry(
                source, tuple(dict.fromkeys((*before.targets, *translations)))
            )
        for entry in self.entries.values():
            source = entry.source.translate(STRAIGHT)
            if source != source.lower():
                terms, tokens = self._as_written, _tokens_as_written(source)
            else:
                terms, tokens = self._in_any_case, TOKEN.findall(source.casefold())
            for token in tokens:
                terms = terms.setdefault(token, _Terms())
            terms.targets = terms.targets or entry.targets

    def __len__(self) -> int:
        return len(self.entries)

    def without(self, forbidden: re.Pattern[str]) -> "Glossary":
        """With those translations alone in which the pattern finds nothing."""
        entries = {
            source: [target for target in entry.targets if not forbidden.search(target)]
            for source, entry in self.entries.items()
        }
        return Glossary(entries, self.inflect)

    @classmethod
    def load(cls, path: str | Path, languages: tuple[str, str], inflect: bool = True) -> "Glossary":
        """Read a file by its ending: .tbx, .csv, or tab-separated values.

        ``languages`` are the codes of source and target. Raises OSError or ValueError that names
        the file and the line.
        """
        content = read_regular(path, MOST_BYTES)
        try:
            if Path(path).suffix.lower() in (".tbx", ".xml"):
                return cls(_read_tbx(content, *languages), inflect)
            text = content.decode("utf-8-sig")
            is_csv = Path(path).suffix.lower() == ".csv"
            return cls((_read_csv if is_csv else _read_tsv)(text, *languages), inflect)
        except UnicodeDecodeError:
            raise ValueError(f"{path}: not UTF-8 text") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def find(self, text: str) -> list[Match]:
        """The terms in a text, from the left, the longest first; they do not overlap."""
        text = text.translate(STRAIGHT)
        words = list(TOKEN.finditer(text))
        tokens = [self._token_forms(token) for token in _tokens_as_written(text)]
        lower = [self._token_forms(word[0].casefold()) for word in words]
        matches: list[Match] = []
        i = 0
        while i < len(words):
            written = self._longest(self._as_written, tokens, i)
            other = self._longest(self._in_any_case, lower, i)
            end, _, targets = max(written, other, key=lambda match: match[:2])
            if targets:
                matches.append(Match(words[i].start(), words[end - 1].end(), self.forms(targets)))
            i = max(end, i + 1)
        return matches

    def _token_forms(self, token: str) -> list[str]:
        """The token, and what it may be the plural of."""
        endings = ("s", "es") if self.inflect and len(token.strip()) > 3 else ()
        singular = [token[: -len(s)] for s in endings if token.endswith(s)]
        singular += [f"{token[:-3]}y"] if endings and token.endswith("ies") else []  # cities
        return [token, *singular]

    def _longest(
        self, terms: _Terms, tokens: list[list[str]], start: int
    ) -> tuple[int, bool, tuple[str, ...]]:
        """Where the longest of the terms that begin at ``start`` ends, whether that is no plural of
        it, and its targets."""
        longest: tuple[int, bool, tuple[str, ...]] = start, False, ()
        for i in range(start, len(tokens)):
            forms = tokens[i] if i > start else [form.lstrip() for form in tokens[i]]
            for form in forms:
                if form in terms and terms[form].targets:
                    longest = i + 1, form == forms[0], terms[form].targets
                    break
            if forms[0] not in terms:
                break
            terms = terms[forms[0]]
        return longest

    def forms(self, targets: tuple[str, ...]) -> tuple[str, ...]:
        """What may stand in a translation for one of the target terms."""
        targets = targets[:MOST_FORMS]
        forms = [form for target in targets for form in self._inflected(target)]
        # At the beginning of a sentence
        forms += [form[0].upper() + form[1:] for form in forms if form[0].islower()]
        return tuple(dict.fromkeys((*targets, *forms)))[:MOST_FORMS]

    def _inflected(self, target: str) -> Iterator[str]:
        *words, last = target.split(" ")
        if not (self.inflect and last.isalpha() and last[1:].islower()):
            yield target
            return
        adjectives = [word for word in words if word.islower() and word.endswith("e")]
        for adjective_ending in AFTER_E if adjectives else ("",):
            before = [word + adjective_ending if word in adjectives else word for word in words]
            for ending in AFTER_E if last.endswith("e") else ENDINGS:
                if ending == "s" and last.endswith(("s", "ß", "x", "z")):
                    continue
                yield " ".join((*before, last + ending))


def _tokens_as_written(text: str) -> list[str]:
    """The tokens, each with a blank before it where the text has one."""
    starts = ((match.start(), match[0]) for match in TOKEN.finditer(text))
    return [" " * text[start - 1 : start].isspace() + token for start, token in starts]


def _split_targets(text: str) -> list[str]:
    return [target for target in text.split("|") if target.strip()]


def _is_header(cells: Sequence[str], source: str, target: str) -> bool:
    """Raises ValueError for the languages in the other order."""
    names = tuple(name.strip().lower() for name in cells[:2])
    if len(names) < 2 or names in HEADERS:
        return names in HEADERS
    sides = [NAMES.get(code, (code,)) for code in (source, target)]
    if names[0] in sides[1] and names[1] in sides[0]:
        raise ValueError(f"its columns are {', '.join(cells[:2])}: the source must come first")
    return names[0] in sides[0] and names[1] in sides[1]


def _read_tsv(text: str, source: str, target: str) -> Iterator[tuple[str, list[str]]]:
    lines = enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)
    rows = [(n, line.split("\t")) for n, line in lines if line.strip() and not _is_comment(line)]
    if rows and _is_header(rows[0][1], source, target):
        rows.pop(0)
    for number, row in rows:
        term, *targets = _without_blank_end(row)
        if not term.strip() or len(targets) != 1 or not _split_targets(targets[0]):
            count = f"has {len(row)} cells, but " if len(targets) > 1 else ""
            raise ValueError(f"line {number}: {count}must be a term, a tab and its translation")
        yield term, _split_targets(targets[0])


def _without_blank_end(row: list[str]) -> list[str]:
    """Without the blank cells after the second one, which spreadsheets write."""
    end = len(row)
    while end > 2 and not row[end - 1].strip():
        end -= 1
    return row[:end]


def _is_comment(line: str) -> bool:
    """# and a blank, or no tab: ``#MeToo`` may be a term."""
    return line.startswith("# ") or (line.startswith("#") and "\t" not in line)


def _read_csv(text: str, source: str, target: str) -> Iterator[tuple[str, list[str]]]:
    """Two columns, or four, the last of which are the languages; rows of others are left out."""
    rows = _rows_of_csv(text)
    if rows and len(rows[0][1]) in (2, 4) and _is_header(rows[0][1], source, target):
        rows.pop(0)
    for number, row in rows:
        if len(row) not in (2, 4) or not all(map(str.strip, row)):
            count = f"has {len(row)} cells, but " if len(row) not in (1, 2, 4) else ""
            raise ValueError(
                f"row {number}: {count}must be a term, a comma or semicolon, and its translation"
            )
        languages = [name.strip().lower() for name in row[2:]] or [source, target]
        if [name.split("-")[0] for name in languages] == [source, target]:
            yield row[0], _split_targets(row[1])


def _rows_of_csv(text: str) -> list[tuple[int, list[str]]]:
    """The rows that are not blank, with their numbers; a spreadsheet may write semicolons.

    More rows have two or four cells with the right delimiter than with the other one.
    """
    rows, others = (_split_rows(text, delimiter) for delimiter in ",;")
    shares = _share_of_terms(rows), _share_of_terms(others)
    if shares == (1, 1):
        raise ValueError(
            "commas and semicolons both make two columns: put cells with such signs into "
            "quotation marks"
        )
    if shares[1] > shares[0] or (shares == (0, 0) and text.count(";") > text.count(",")):
        rows = others
    if isinstance(rows, csv.Error):
        raise ValueError(f"not comma-separated values: {rows}")
    return rows


def _split_rows(text: str, delimiter: str) -> list[tuple[int, list[str]]] | csv.Error:
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
    except csv.Error as error:
        return error
    numbered = enumerate(map(_without_blank_end, rows), 1)
    return [(number, row) for number, row in numbered if any(map(str.strip, row))]


def _share_of_terms(rows: list[tuple[int, list[str]]] | csv.Error) -> float:
    """The share of rows that may be a term with its translation and their languages."""
    if isinstance(rows, csv.Error):
        return 0
    return sum(len(row) in (2, 4) for _, row in rows) / max(1, len(rows))


def _read_tbx(content: bytes, source: str, target: str) -> Iterator[tuple[str, list[str]]]:
    """The terms of each concept in both languages, as TBX of 2008 and of 2019 writes them."""
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        raise ValueError(f"not XML: {error}") from None
    for concept in root.iter():
        if _name(concept) not in ("termEntry", "conceptEntry"):
            continue
        terms: dict[str, list[str]] = {}
        for section in concept:
            language = section.get(XML_LANG, "").lower().split("-")[0]
            own = [" ".join("".join(e.itertext()).split()) for e in section.iter()
                   if _name(e) == "term"]  # fmt: skip
            terms.setdefault(language, []).extend(filter(None, own))
        if terms.get(target):
            yield from ((term, terms[target]) for term in terms.get(source, ()))


def _name(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]
