"""Text as people type it, written like the text of training.

Words stay the same, so that what is known of the words holds for the text as it was typed.
"""

import itertools
import re

# "Hello , you !", but not in code or placeholders, nor "2 : 1"
_BLANK_BEFORE_MARK = re.compile(
    r"(?<=[^\s.,;:!?…–—=+*/<>|&_(\[{„«-])(?<!\s[\"'“‘])(?<!\A[\"'“‘])(?<!:\() +"
    r"(?=[,;](?:\s|\Z)|:\s+[^\W\d_]|:\Z|[.!?](?:\s*\Z|\s+[A-Z]))"
)
_CODE_SIGNS = re.compile(r"[`{}<>]")
_NO_PROSE = re.compile(r"[`{}<>=\\]")
_DOUBLE_QUOTES = re.compile(r"[\"“”„«»]")
# 'so' or ‘so’, but not 'em, 'n' and the like; a mark before the second sign shows that it is no
# apostrophe of "boys'"
_OPENING = re.compile(r"(?:(?<!\S)|(?<=\s\())['‘](?=[^\W\d])(?!(?:n|em|til|tis|twas|cause|bout)\b)")
_CLOSING_AFTER_MARK = re.compile(r"(?<=[.,!?…])['’](?![^\s.,;:!?)…–—-])")
_CLOSING = re.compile(r"(?<=\w)['’](?![^\s.,;:!?)…–—-])")
_YEAR = re.compile(r"(?<!\S)['‘](?=\d\ds?\b)")  # '98, '60s


def tidy(text: str) -> tuple[str, tuple[int, ...]]:
    """The text, and the numbers of the words before marks that stood apart from them.

    No mark has a blank before it, and quotation marks are "double ones".
    """
    text = _with_double_quotes(text)
    if _CODE_SIGNS.search(text):
        return text, ()
    apart: list[int] = []
    words = end = 0
    for match in _BLANK_BEFORE_MARK.finditer(text):
        words += len(text[end : match.start()].split())
        end = match.end()
        apart.append(words - 1 - len(apart))  # the marks before are counted
    return _BLANK_BEFORE_MARK.sub("", text), tuple(apart)


def _with_double_quotes(text: str) -> str:
    """'Quotes' as "quotes"; within "quotes" they stay 'single', and ‘curved’ ones become so."""
    if _NO_PROSE.search(text):
        return text
    sign = "'" if _DOUBLE_QUOTES.search(text) else '"'
    openings = [match.start() for match in _OPENING.finditer(text)]
    characters = list(text)
    for start, end in itertools.pairwise([*openings, len(text)]):
        for pattern in (_CLOSING_AFTER_MARK, _CLOSING):
            if closing := pattern.search(text, start, end):
                characters[start] = characters[closing.start()] = sign
                break
    return _YEAR.sub("’", "".join(characters))
