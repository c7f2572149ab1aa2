"""Turn the dictionary Ding into sentences and phrases, a corpus that clean.py reads.

apt-get download trans-de-en && dpkg -x trans-de-en_*.deb dictionary
python scripts/bundled_model/ding.py dictionary/usr/share/trans/de-en --output ding

Ding is a German-English dictionary by Frank Richter, GPL 2 or later, which Debian distributes. A
line has a German and an English column, each with as many cells, each with synonyms:

    Bank {f} [fin.] | Banken {pl} | Ich gehe zur Bank. :: bank | banks | I'm going to the bank.

The script writes OUTPUT.en, OUTPUT.de and OUTPUT.domain: whole sentences, of any subject, as
``ding-sentences``; nouns with their article, verbs and phrases as ``ding-phrases``. Each English
synonym comes with the first German one that is left: without those that are regional or old. Among
the phrases are no words of most sciences, none with a word that is rare in sentences, no more than
two translations of one phrase, and none of one or two words that have several translations,
because nothing there tells which is meant.
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from mt.utils import console

with console.exit_at_interrupt():
    from mt.data import phrasebook
    from mt.data.readers import Pair
    from mt.utils.atomic import atomic_write
    from mt.utils.line_io import read_lines

# Subjects whose words nobody types to a translator of everyday text.
SUBJECTS = """ornith. zool. bot. min. chem. biochem. geol. astron. anat. statist. math. phys.
    electr. mach. geogr. naut. biol. ling. phil. print relig. mil. hist. myth. techn. envir. agr.
    telco. mus. pej. vulg. slang"""
# Synonyms that are regional, old or rare.
MARKED = """Ös. Westös. Ostös. Schw. Bayr. Süddt. Südwestdt. Norddt. Nordostdt. Nordwestdt.
    Mitteldt. Mittelwestdt. Mittelostdt. Ostdt. Westdt. Südtirol Lie. alt veraltet veraltend
    altertümlich altertümelnd obs. archaic dated arch. hist. rare selten poet. Sc. Ir. Can. Austr.
    NZ eAm. geh. formal vulg. Jägersprache Jugendsprache DDR"""
SCIENCES, UNUSUAL = (set(text.split()) for text in (SUBJECTS, MARKED))
SHORT_FORMS = {
    "jdn./etw.": "etwas", "jdm./etw.": "etwas", "jds./etw.": "von etwas", "sb./sth.": "something",
    "sb.'s": "somebody's", "sth.'s": "something's", "sb.": "somebody", "sth.": "something",
    "sb": "somebody", "sth": "something", "swh.": "somewhere",
    "jdn.": "jemanden", "jdm.": "jemandem", "jd.": "jemand", "jds.": "jemandes", "etw.": "etwas",
    "irgendjdm.": "jemandem", "irgendjdn.": "jemanden",
}  # fmt: skip
SHORT_FORM = re.compile(
    r"(?<!\w)(?:"
    + "|".join(map(re.escape, sorted(SHORT_FORMS, key=len, reverse=True)))
    + r")(?!\w)"
)
ARTICLES = {"m": "der", "f": "die", "n": "das"}
MARK = re.compile(r"\s*\{([^}]*)\}")
TAG = re.compile(r"\s*\[([^\]]*)\]")
REMARK = re.compile(r"\s*\([^()]*\)(?!\w)|\([^()]*\)")
CHOICE = re.compile(r"(?<![\w/.-])([^\W\d_][\w'-]*)(?:/[^\W\d_][\w'-]*)+(?![\w/]|\.\w)")  # he/she
ARTICLE = re.compile(r"^(?:the|an?) ")
WORD = re.compile(r"[\w']+")
COMMON = 3  # times that a word of a phrase must occur in sentences, here or in the phrasebook
TRANSLATIONS = 2  # of one phrase
SENTENCE_END = re.compile(r"[.!?][\"'“”)]*$")
ENGLISH_PRONOUN = re.compile(r"(?:I|he|she|it|they|we|you)\b")
GERMAN_PRONOUN = re.compile(r"(?:ich|er|sie|es|wir|ihr|du|man)\b")


def read_entries(path: Path) -> Iterator[list[tuple[str, str]]]:
    """The cells of each entry, (English, German), as they stand there."""
    for line in read_lines(path):
        german, separator, english = line.partition("::")
        cells = english.split("|"), german.split("|")
        if separator and not line.startswith("#") and len(cells[0]) == len(cells[1]):
            yield list(zip(*cells, strict=True))


def tags(text: str) -> set[str]:
    """What stands in square brackets, which is separated by commas."""
    return {part.strip() for tag in TAG.findall(text) for part in tag.split(",")}


def synonyms(cell: str) -> list[tuple[str, str]]:
    """The usual synonyms of a cell, plain, each with the gender of a noun or ""."""
    found = []
    cell = cell.replace("’", "'").strip()
    # A semicolon in brackets separates nothing.
    bare = re.sub(r"\{[^}]*\}|\([^()]*\)", lambda match: match[0].replace(";", ","), cell)
    for text in bare.split(";"):
        if tags(text) & UNUSUAL:
            continue
        marks = MARK.findall(text)
        gender = marks[0] if marks and marks[0] in ARTICLES else ""
        text = REMARK.sub("", TAG.sub("", MARK.sub("", text)))
        text = SHORT_FORM.sub(lambda match: SHORT_FORMS[match[0]], text)
        text = " ".join(CHOICE.sub(r"\1", text).split())
        if text and not re.search(r"[…/|<>{}\[\]()~+=]|\.\.\.", text):
            found.append((text, gender))
    return found


def is_sentence(english: str, german: str) -> bool:
    return all(
        SENTENCE_END.search(text) and re.match(r"[\"'„]?[A-ZÄÖÜ]", text)
        for text in (english, german)
    )


def pairs(path: Path) -> Iterator[tuple[str, Pair]]:
    """The pairs, each with its domain."""
    for cells in read_entries(path):
        headword = cells[0]
        special = bool(tags("".join(headword)) & SCIENCES)
        verb = headword[0].strip().startswith("to ")
        for english_cell, german_cell in cells:
            for german in synonyms(german_cell)[:1]:
                for english, _ in synonyms(english_cell):
                    yield from convert(english, *german, verb=verb, special=special)


def convert(
    english: str, german: str, gender: str, *, verb: bool, special: bool
) -> Iterator[tuple[str, Pair]]:
    """What becomes of an English synonym and a German one: one pair or none.

    Other forms of a verb stand there without their pronoun, as *bluffing*, and are left out.
    """
    if is_sentence(english, german):
        yield "ding-sentences", (english, german)
    elif special or SENTENCE_END.search(english) or SENTENCE_END.search(german):
        return
    elif verb and not english.startswith("to "):
        if ENGLISH_PRONOUN.match(english) and GERMAN_PRONOUN.match(german):
            yield "ding-phrases", (english, german)
    elif gender and " " not in german:
        yield "ding-phrases", (f"the {ARTICLE.sub('', english)}", f"{ARTICLES[gender]} {german}")
    else:
        yield "ding-phrases", (english, german)


def useful(rows: Iterable[tuple[str, Pair]]) -> Iterator[tuple[str, Pair]]:
    """The rows without phrases with rare words, or with too many translations."""
    rows = list(dict.fromkeys(rows))
    counts = Counter[str]()
    sentences = [pair for name, pair in rows if name == "ding-sentences"]
    for part in ("themes", "vocabulary", "situations"):
        sentences += phrasebook.load("train", parts=(part,))
    for english, _ in sentences:
        counts.update(WORD.findall(english.lower()))
    phrases = [ARTICLE.sub("", pair[0]) for name, pair in rows if name == "ding-phrases"]
    translations, given = Counter(phrases), Counter[str]()
    for name, pair in rows:
        if name == "ding-phrases":
            phrase = ARTICLE.sub("", pair[0])
            words = WORD.findall(phrase.lower())
            given[phrase] += 1
            ambiguous = translations[phrase] > 1 and len(words) < 3
            rare = any(counts[word] < COMMON for word in words)
            if ambiguous or rare or given[phrase] > TRANSLATIONS:
                continue
        yield name, pair


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dictionary", type=Path, help="the file de-en of the package trans-de-en")
    parser.add_argument("--output", required=True, help="prefix of .en, .de and .domain")
    args = parser.parse_args(argv)

    def run() -> None:
        rows = [(name, *pair) for name, pair in useful(pairs(args.dictionary))]
        if not rows:
            raise ValueError(f"{args.dictionary}: no entry GERMAN :: ENGLISH")
        columns = zip(*rows, strict=True)
        for suffix, column in zip((".domain", ".en", ".de"), columns, strict=True):
            atomic_write(args.output + suffix, "\n".join(column) + "\n")
        print(f"{len(rows):,} pairs")

    return console.exit_status("ding", run)


if __name__ == "__main__":
    sys.exit(main())
