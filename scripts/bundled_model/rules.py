"""Which pairs of a corpus are fit for training: mends first, then reasons to drop a pair."""

import re
from collections.abc import Callable
from functools import lru_cache

import german

Pair = tuple[str, str]
Mend = Callable[[str, str], Pair]
Rule = Callable[[str, str], bool]  # English, German: is the pair to be dropped?

LETTER = re.compile(r"[^\W\d_]")
KEY = re.compile(r"\w+|[\u2190-\u2bff\U0001f000-\U0001faff]")  # words, arrows and emoji
LATIN = re.compile(r"[A-Za-zÀ-ſ]")
# Frequent words of one language that the other does not have.
ENGLISH = """the and is are of to with for you this that it from were be have has your they which
    will can could should when there if or by as at we he she his would i not no into after
    while only"""
GERMAN = """der die das und ist sind von zu mit für sie dieser diese dieses dass es im auf aus waren
    sein haben hat nicht ihr ihre wird werden wurde wurden kann sollte wenn oder ein eine einen
    einem eines durch als wir er ich du den dem des zum zur bei beim nach auch wie am nur vor über
    unter kein keine sich vom bis"""
OTHER = """que los las una por un est les une et pas vous het een niet van voor di che il la le el
    te de"""
ENGLISH_WORDS, GERMAN_WORDS, OTHER_WORDS = (set(text.split()) for text in (ENGLISH, GERMAN, OTHER))

MARKUP = re.compile(
    r"</?[A-Za-z!|-]|\w>|<->|&#?\w{2,8};|\\|[`|^]|\{\{|\}\}|\[\[|\]\]|\[\w+=|\$[A-Za-z({\[]"
    r"|''|::|==|=[\"'\w]|--(?!\w)|__|^(?:[-#;*.,:+>?_]|//)|\bxx+\b"
)
PLACEHOLDER = re.compile(
    r"(?<!\d)%[-+#0\d.*$]*[A-Za-z]|(?<!\d)%\d|%[({<%]|\{\w*\}|\[[\d%]+\]|@\d|@\w+@|~[A-Za-z]\b"
    r"|(?<!\d )(?<!\S)['\"„“]?[#%~@*]['\"“”]?(?!\w)|PRODUCTNAME"
)
# print.media-type
IDENTIFIER = re.compile(r"\S*[a-z][._:/]\S*[a-z]\S*|\S+-\S+-\S+|\S*[a-z][A-Z]\S*")
LINK = re.compile(r"(?:https?://|www\.|ftp://)[^\s,;)“]*[^\s,;)“.:!?]|[\w.+-]+@[\w-]+\.\w+")
INNER_CAPITAL = re.compile(r"\b[^\W\d_]*[a-zäöüß][A-ZÄÖÜ][^\W\d_]*")  # CamelCase
RUN_TOGETHER = re.compile(r"[a-zäöüß]{2}[.!?:;][A-ZÄÖÜ][a-zäöü]|;\S")
GAP = re.compile(r"\s[.,;!?](?:\s|$)|(?<!\w)\(\s*\)|[„\"'‘]\s*[“\"'’](?!\w)")
CLOCK = re.compile(r"Uhr|\d ?[ap]\.?m\b|o'clock|\d:\d\d")
# Common names that are the same in German; some translators wrote Johannes, Elke, Johannsen.
NAMES = re.compile(r"\b(?:Tom|John|Alice|Jackson|Smith|Boston)(?=s?\b)")


@lru_cache(maxsize=4)
def words(text: str) -> list[str]:
    """The words in small letters, without punctuation."""
    return re.findall(r"\w+", text.lower())


def key(text: str) -> str:
    """What two sentences share that differ in case and punctuation alone; emoji are no such."""
    return " ".join(KEY.findall(text.lower()))


# Mends


def blanks(en: str, de: str) -> Pair:
    return " ".join(en.split()), " ".join(de.split())


def straight_quotes(en: str, de: str) -> Pair:
    """English quotes and apostrophes as on a keyboard; training makes typographic ones."""
    return en.translate(str.maketrans("’‘“”", "''\"\"")), de


def normal_german(en: str, de: str) -> Pair:
    return en, german.normalise(en, de)


def normal_german_of_software(en: str, de: str) -> Pair:
    """$1 is a placeholder there, no price."""
    masked = re.sub(r"\$(?=[1-9](?!\d))", "\ue000", de)
    return en, german.normalise(en, masked).replace("\ue000", "$")


def final_mark(en: str, de: str) -> Pair:
    """The full stop, if one sentence ends with it and the other with a letter."""
    if en[-1:] in (".", "!", "?") and de[-1:].isalpha() and len(words(de)) > 3:
        return en, de + en[-1]
    if de[-1:] == "." and en[-1:].isalpha() and len(words(de)) > 3 and de[-2:] != "..":
        return en, de[:-1]
    return en, de


def first_capital(en: str, de: str) -> Pair:
    """German begins with a capital where English does, but for abbreviations."""
    return en, de[:1].upper() + de[1:] if en[:1].isupper() and en[1:2].islower() else de


def product_name(en: str, de: str) -> Pair:
    """What LibreOffice's help fills in, and its names of keys and menus on two systems."""
    for old, new in (
        ("%PRODUCTNAME", "LibreOffice"), ("$[officename]", "LibreOffice"), ("CommandCtrl", "Ctrl"),
        ("BefehlStrg", "Strg"), ("OptionAlt", "Alt"), ("WahlAlt", "Alt"),
        ("PreferencesTools - Options", "Tools - Options"),
        ("EinstellungenExtras – Optionen", "Extras – Optionen"),
    ):  # fmt: skip
        en, de = en.replace(old, new), de.replace(old, new)
    return en, de


def accelerators(en: str, de: str) -> Pair:
    """Menu entries without the mark of their key: "_File", "&File", "~File", "Datei (_F)".

    A word that has its mark on both sides is a name, such as MAX_PATH or R&D.
    """
    for mark in "_&~":
        marked = [re.findall(rf"\w*{mark}[^\W\d_]\w*", text) for text in (en, de)]
        if max(map(len, marked)) == 1 and marked[0] != marked[1]:
            en, de = re.sub(rf"{mark}(?=\w)", "", en), re.sub(rf"{mark}(?=\w)", "", de)
    if not re.search(r"\([A-Z]\)$", en):
        de = re.sub(r"\s*\([A-Z]\)$", "", de)
    return en, de


# Reasons to drop a pair


def empty(en: str, de: str) -> bool:
    return not (LETTER.search(en) and LETTER.search(de))


def encoding(en: str, de: str) -> bool:
    return bool(re.search(r"\ufffd|Ã.|â€|Â ", en + de))


def other_script(en: str, de: str) -> bool:
    return any(len(LATIN.findall(text)) < 0.7 * len(LETTER.findall(text)) for text in (en, de))


def wrong_language(en: str, de: str) -> bool:
    """More words of another language than of its own, and at least two."""
    return any(
        count(text, others) > max(count(text, own), 1)
        for text, own, others in (
            (en, ENGLISH_WORDS, GERMAN_WORDS),
            (de, GERMAN_WORDS, ENGLISH_WORDS | OTHER_WORDS),
        )
    )


def count(text: str, vocabulary: set[str]) -> int:
    return sum(word in vocabulary for word in words(text))


def too_long(en: str, de: str) -> bool:
    return max(len(en), len(de)) > 600 or max(map(len, f"{en} {de}".split())) > 45


def length_ratio(en: str, de: str) -> bool:
    return not 0.45 <= (len(de) + 8) / (len(en) + 8) <= 2.6


def question(en: str, de: str) -> bool:
    """One side asks and the other does not."""
    ends = {text.rstrip("\"'“’)»")[-1:] for text in (en, de)}
    return "?" in ends and len(ends) == 2 and not ends & {"‽"}


def numbers_differ(en: str, de: str) -> bool:
    return numbers(en) != numbers(de)


def other_numbers(en: str, de: str) -> bool:
    """Digits on both sides, but others: miles to kilometres, 911 to 110. Clocks may differ."""
    both = numbers(en) and numbers(de)
    return bool(both and numbers(en) != numbers(de) and not CLOCK.search(en + de))


def numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", re.sub(r"(?<=\d)[.,\s](?=\d)", "", text)))


def names_differ(en: str, de: str) -> bool:
    return {*NAMES.findall(en)} != {*NAMES.findall(de)}


def markup(en: str, de: str) -> bool:
    return bool(MARKUP.search(en) or MARKUP.search(de))


def placeholder(en: str, de: str) -> bool:
    return bool(PLACEHOLDER.search(en) or PLACEHOLDER.search(de))


def identifier(en: str, de: str) -> bool:
    """A name in a program rather than words."""
    return bool(IDENTIFIER.fullmatch(en))


def untranslated(en: str, de: str) -> bool:
    """Nearly the same words. A name of one or two words may stay."""
    if key(en) == key(de):
        return len(words(en)) > 2 or not (en[0].isupper() and re.fullmatch(r"[^\W\d_ -]+", en))
    common = {*words(en)} & {*words(de)}
    shorter = min(len({*words(en)}), len({*words(de)}))
    return len(words(en)) >= 4 and len(common) >= 0.6 * shorter


def symbols(en: str, de: str) -> bool:
    return any(len(LETTER.findall(t)) < 0.6 * len(t.replace(" ", "")) for t in (en, de))


def no_sentence(en: str, de: str) -> bool:
    """Many words and no function word: lists of keywords."""
    return (len(words(en)) >= 8 and not count(en, ENGLISH_WORDS | {"in"})) or (
        len(words(de)) >= 9 and not count(de, GERMAN_WORDS | {"in"})
    )


def run_together(en: str, de: str) -> bool:
    """The parts of a list or of a menu path without what stood between them."""
    if RUN_TOGETHER.search(en) or RUN_TOGETHER.search(de):
        return True
    return {*INNER_CAPITAL.findall(en)} != {*INNER_CAPITAL.findall(de)}


def gap(en: str, de: str) -> bool:
    """Something was taken out: "changed in .", an empty bracket."""
    return bool(GAP.search(en) or GAP.search(de))


def truncated(en: str, de: str) -> bool:
    if re.search(r"[,(\[„]$", en) or re.search(r"[,(\[„]$", de):
        return True
    return any(text.count("(") != text.count(")") for text in (en, de))


def colon(en: str, de: str) -> bool:
    return (en[-1] == ":") != (de[-1] == ":")


def capitals(en: str, de: str) -> bool:
    return any(text.isupper() and len(text) > 6 for text in (en, de))


def links_differ(en: str, de: str) -> bool:
    return sorted(LINK.findall(en)) != sorted(LINK.findall(de))


def catalogue(en: str, de: str) -> bool:
    """Names of stars: thousands that differ in a number."""
    return bool(re.search(r"\bAdded [IVXL]+$", en))


MENDS: list[Mend] = [blanks, straight_quotes, normal_german, final_mark]
RULES: list[tuple[str, Rule]] = [
    ("empty", empty),
    ("encoding", encoding),
    ("other script", other_script),
    ("wrong language", wrong_language),
    ("too long", too_long),
    ("length ratio", length_ratio),
    ("question and statement", question),
]
EVERYDAY_RULES: list[tuple[str, Rule]] = [
    *RULES,
    ("other numbers", other_numbers),
    ("other names", names_differ),
]
SOFTWARE_MENDS: list[Mend] = [
    blanks,
    product_name,
    *(normal_german_of_software if mend is normal_german else mend for mend in MENDS),
    first_capital,
]
SOFTWARE_RULES: list[tuple[str, Rule]] = [
    ("markup", markup),
    ("placeholder", placeholder),
    ("identifier", identifier),
    *RULES,
    ("untranslated", untranslated),
    ("symbols", symbols),
    ("no function words", no_sentence),
    ("numbers differ", numbers_differ),
    ("run together", run_together),
    ("gap", gap),
    ("truncated", truncated),
    ("colon", colon),
    ("capitals", capitals),
    ("links differ", links_differ),
    ("catalogue", catalogue),
]


def judge(pair: Pair, mends: list[Mend], rules: list[tuple[str, Rule]]) -> Pair | str:
    """The mended pair, or the reason to drop it."""
    for mend in mends:
        pair = mend(*pair)
    return next((reason for reason, rule in rules if rule(*pair)), pair)
