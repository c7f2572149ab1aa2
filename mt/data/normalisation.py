"""How a tokenizer with byte fallback normalises text, and which characters it always spells.

NFKC makes equal what means the same: ﬁ and fi, … and three dots, a full-width and a plain A. It
also makes 25 m2 of 25 m². What people want to get back as they typed it is left out of it here.
"""

import unicodedata
from functools import cache

KEPT = frozenset("²³¹⁰⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉½¼¾⅓⅔⅛⅜⅝⅞™℠ªº№µ℃℉ℓ")
# Normalising these would take most of the table: CJK ideographs of older standards, and Hangul
# syllables, which few programs write in parts.
_LEFT = (range(0xF900, 0xFB00), range(0x2F800, 0x2FA20), range(0xAC00, 0xD7A4))


def table() -> dict[str, str]:
    """NFKC without KEPT: what is replaced, one character or a letter and its marks, by what."""
    replaced: dict[str, str] = {}
    for code in range(ord(" "), 0x110000):
        c = chr(code)
        if c in KEPT or any(code in span for span in _LEFT):
            continue
        if unicodedata.category(c) in ("Cn", "Co", "Cs"):  # unassigned, private, surrogate
            continue
        if (normal := unicodedata.normalize("NFKC", c)) != c:
            replaced[c] = normal
        apart = unicodedata.normalize("NFD", c)
        if apart != c and unicodedata.normalize("NFC", apart) == c:
            replaced[apart] = c
    return replaced


@cache  # it takes a second
def rules() -> str:
    """The table in the form that SentencePiece reads: hexadecimal codes, a tab between the two."""
    rows = [[" ".join(f"{ord(c):X}" for c in text) for text in row] for row in table().items()]
    return "".join(f"{source}\t{target}\n" for source, target in sorted(rows))


def alphabet() -> set[str]:
    """Letters and punctuation of the languages in Latin script, and common signs."""
    latin = {chr(code) for code in range(ord("!"), 0x180)}
    normal = {c for c in latin if c.isprintable() and unicodedata.normalize("NFKC", c) == c}
    return normal | set("„“”‚‘’«»‹›–—€™²³½¼¾ȘșȚț")
