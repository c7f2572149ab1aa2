"""Numbers, times, dates and codes in a text, with the German forms that a translation may have.

All patterns take linear time (``kept_verbatim``).
"""

import re
from collections.abc import Iterator

from mt.inference.kept_verbatim import Kept, as_is
from mt.inference.number_forms import (
    CURRENCIES,
    amounts,
    both_written,
    clock_time,
    decade,
    is_number,
    millions,
    number_range,
    numerals,
    numeric_date,
    opening_hours,
    ordinal,
    shortened,
    spoken_time,
    with_sign,
    written,
)

# Times and dates

_CLOCK = r"(1[0-2]|0?[1-9])(?:[:.]([0-5][0-9]))?[ \u00a0\u202f]?"
_HALF_DAY = r"([ap])(?:\.m\.|m(?!\w))"
_DASH = r"[ \u00a0\u202f]?[-–][ \u00a0\u202f]?"
_HOUR = re.compile(rf"(?<![\w.,:/–-]){_CLOCK}{_HALF_DAY}", re.IGNORECASE)
_HOURS = re.compile(  # 9am-5pm, 2–3 p.m.
    rf"(?<![\w.,:/–-]){_CLOCK}(?:{_HALF_DAY})?{_DASH}{_CLOCK}{_HALF_DAY}",
    re.IGNORECASE,
)
_HOUR_WORDS = r"(?P<hour>1[0-2]|[1-9])(?![\w:%]|[.,/-][0-9])"
_HALF_PAST = re.compile(rf"(?<![\w-])(?P<time>(?P<words>half past) {_HOUR_WORDS})", re.IGNORECASE)
_QUARTER = re.compile(  # not "last quarter to 5 million"
    r"(?<!\w)(?:at|by|until|till|about|around|before|after|since|from|is|it's) "
    rf"(?P<time>(?:a )?(?P<words>quarter (?:past|after|to)) {_HOUR_WORDS})"
    r"(?=\W*\Z|[.,;:!?)]|\s(?:in|on|this|tomorrow|today|tonight|and|or|to|until|but|when|if)\b)",
    re.IGNORECASE,
)
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
_DAY = r"(?P<day>3[01]|[12][0-9]|0?[1-9])(?P<suffix>st|nd|rd|th)?"
_DAY_FIRST = re.compile(rf"(?<![\w.,:/-]){_DAY}(?: of)? {_MONTH}(?!\w)")
_DAY_LAST = re.compile(rf"(?<!\w){_MONTH} {_DAY}(?![\w:%]|[.,/-][0-9])")


def find_times_and_dates(text: str) -> Iterator[Kept]:
    for match in _HOUR.finditer(text):
        forms = clock_time(match[1], match[2], match[3].lower() == "p")
        yield Kept(*match.span(), "time", forms)
    for match in _HOURS.finditer(text):
        first, last = (match[1], match[2], match[3]), (match[4], match[5], match[6])
        yield Kept(*match.span(), "time", (*opening_hours(first, last), match[0]))
    for pattern in (_HALF_PAST, _QUARTER):
        for match in pattern.finditer(text):
            forms = spoken_time(match["words"].lower(), int(match["hour"]))
            yield Kept(*match.span("time"), "time", forms)
    for pattern in (_DAY_FIRST, _DAY_LAST):
        for match in pattern.finditer(text):
            end = match.end("suffix") if match["suffix"] else match.end("day")
            day = match["day"].lstrip("0")
            yield Kept(match.start("day"), end, "date", tuple(dict.fromkeys((day, match["day"]))))


# Numbers and codes

_TOKEN = re.compile(
    r"""(?<![\w#.]) \#? (?:\.(?=[0-9]))? \w+
    (?: (?: [/*×^=~&] | [-+]{1,2} | \.(?![A-Z][a-z]) | (?<=[0-9])[–'’,](?=[0-9]) | (?<=[0-9]):
          | (?<=[0-9A-F]):(?=[0-9A-F]{1,4}\b)
        ) \w+ )*
    (?: (?<=[0-9]) [⁺⁻][⁰¹²³⁴-⁹]+ )?  # 10⁻³""",
    re.VERBOSE,
)
_PHONE = re.compile(
    r"""(?<![\w+]) (?:
        \+[0-9]{1,15}(?![0-9])
        (?: [ /.-]?\([0-9]{1,5}\)[0-9]{0,12}(?![0-9]) | [ /.-][0-9]{1,12}(?![0-9]) ){0,6}
      | (?: \([0-9]{2,5}\)[ /-]? | 0[0-9]{2,5}[ /] ) [0-9]{3,12}(?![0-9])
        (?: [ -][0-9]{2,12}(?![0-9]) ){0,4}
    ) (?!\w)""",
    re.VERBOSE,
)
SHORTEST_PHONE = 7  # digits
_BANK = re.compile(  # IBAN, and the number of a card
    r"""(?<!\w) (?:
        [A-Z]{2}[0-9]{2} [ ]?[A-Z0-9]{4} (?: [ ]?(?=[A-Z]{0,3}[0-9])[A-Z0-9]{4} ){1,6}
        (?: [ ]?(?=[A-Z]?[0-9])[A-Z0-9]{1,3} )?
      | [0-9]{4}(?:[ ][0-9]{4}){3}
    ) (?!\w)""",
    re.VERBOSE,
)
_ORDINAL = re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:st|nd|rd|th)", re.IGNORECASE)
_DECADE = re.compile(r"((?:1[0-9]|20)[0-9]0|[2-9]0)s")
_UNITS = (
    "km/h|mph|kph|km|cm|mm|nm|ml|cl|dl|kg|mg|kHz|MHz|GHz|Hz|kWh|kW|MW|GW|kB|KB|MB|GB|TB|Mbps|Gbps"
    "|px|pt|dpi|ms|min|m|g|l|s|h|V|W"
)
_ATTACHED = rf"{_UNITS}|ft|mi|lbs?|oz|L|tsp|tbsp|EUR|USD|GBP|CHF|x"  # without a blank: 2.5x
_MEASURE = re.compile(rf"(.*[0-9])({_ATTACHED})")
_PAIR = re.compile(rf"([0-9.,]*[0-9])([/x×])([0-9.,]*[0-9])({_ATTACHED})?")  # 4.5/5, 3.5x4m
_SHORTENED = re.compile(r"([0-9.,]*[0-9])(k|M|bn)")
_SHORT_AMOUNT = re.compile(r"([0-9.,]*[0-9])(K|m|b)")  # only after the sign of a currency
_LONG_SIGN = {"K": "k", "m": "M", "b": "bn"}
_RATE = re.compile(r"([0-9.,]*[0-9])/[a-z]{2,}")  # "$5/month": the word is to be translated
_INCHES = re.compile(  # 27" and 5'11", or a quotation mark
    r"(?<![\w.,'])(?P<feet>[0-9]{1,2}'[0-9]{1,2})(?:\"|'')?(?![\w'\"])"
    r"|(?<![\w.,'])(?P<inches>[0-9]{1,4}(?:\.[0-9]{1,2})?)\"(?![\w\"])"
    r"|[\"“”„]"
)
_GROUPS = re.compile(  # 1 000 000; two groups may be two numbers, unless the blank is a firm one
    r"(?<![\w.,/-])[1-9][0-9]{0,2}(?:(?: [0-9]{3}){2,5}|(?:[\u00a0\u202f][0-9]{3}){1,5})"
    r"(?!\w|[.,:/-][0-9]|[ \u00a0\u202f][0-9])"
)
_MIXED = re.compile(  # 1 1/2
    r"(?<![\w.,/-])[0-9]{1,3}[ \u00a0\u202f]([1-9][0-9]?)/([1-9][0-9]{0,2})(?![\w/-]|[.,][0-9])"
)
_AMOUNT_RANGE = re.compile(  # $5-$10
    r"(?<![\w.,-])([€$£¥])([0-9.,]*[0-9])([-–])\1([0-9.,]*[0-9])(?![\w%])(?![.,:/–-][0-9])"
)
_SIGNED = re.compile(r"(?<!\w)(?:([-−–+])[€$£¥]|[€$£¥]([-−–+]))\Z")  # before an amount
_MINUS = re.compile(r"(?:\A|[\s([{=:,;<>])[-−–]\Z")  # not a dash between words, nor 5-10
_AND_MORE = re.compile(r"\+(?![\w+$€£¥])")  # $50+
_RANGE = re.compile(r"([0-9.,]*[0-9])([-–])([0-9.,]*[0-9])")
# "10-minute", "5-year-old": the words are to be translated.
_COMPOUND = re.compile(r"([0-9.,]*[0-9])(?:-[a-z]+)+")
_HEAD = re.compile(r"(?:mid|pre|post|late|early|non|anti|under|over|top|sub)-", re.IGNORECASE)
# After these a number is a name: "version 3.10" is not "3,10", and "page 3" not "drei".
_NUMBERED = frozenset(
    """
    version release section chapter figure fig table page pages p pp step level no nos number nr
    room gate platform line part type option question volume vol unit lesson grade phase size track
    bus route terminal building floor apartment flat item appendix article paragraph act scene
    season episode formula class code day week group exercise v ver § python
    """.split()  # noqa: SIM905
)
# Not the %s of a placeholder
_UNIT_AFTER = re.compile(rf"[ \u00a0\u202f]?(?:%(?![A-Za-z({{])|[‰°€$£¥+×=/]|(?:{_UNITS})(?!\w))")
_SIGN_AFTER = re.compile(rf"[ \u00a0\u202f]?(%(?![%A-Za-z({{])|[‰€$£¥]|°[CF]?|(?:{_UNITS})(?!\w))")
_MILLIONS = re.compile(r"[ \u00a0\u202f](million|billion)(?![\w-])")
_LISTED_BEFORE = re.compile(r"[0-9], (?:[0-9]{1,9},? (?:and|or) )?\Z")  # 1, 2 and 3
_LISTED_AFTER = re.compile(r", (?:and |or )?[0-9]")
_NUMERIC_DATE = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/((?:1[0-9]|20)[0-9]{2})")
# "won 9-5", "the score was 5-1", but not "lost 3-5 kilos"
_SCORE_BEFORE = re.compile(
    r"(?:won|wins?|lost|loses?|leading|led|trailing|beat|drew|scored"
    r"|(?:match|game) ended|(?<!average )score (?:was|is))"
    r"(?: (?:is|was|were|at|by|with|them|us|it))? \Z"
)
_SCORE_AFTER = re.compile(
    r"\s*(?:[.,;:!?)]|\Z)| (?:in|on|at|against|to|after|and|but|with|last|yesterday|today)\b"
)
_PRERELEASES = frozenset(("alpha", "beta", "dev", "final", "preview", "release", "stable"))
_GOES_ON = re.compile(r"[^\W\d_A-Z][,;]?\Z")
_CONTEXT = 32  # characters before a number that decide about it


def find_with_digits(text: str, decimal: str) -> Iterator[Kept]:
    for match in _PHONE.finditer(text):
        if sum(map(str.isdigit, match[0])) >= SHORTEST_PHONE:
            yield as_is(text, *match.span(), "identifier")
    for match in _BANK.finditer(text):
        yield as_is(text, *match.span(), "identifier")
    yield from _inches(text, decimal)
    for match in _GROUPS.finditer(text):
        if _is_numbered(text, match.start()):
            continue
        digits = re.sub(r"\s", "", match[0])
        german = f"{int(digits):,}".replace(",", "."), digits
        forms = {"as written": (match[0],), "german": german}.get(decimal, (match[0], *german))
        amount = _amount(text, *match.span(), forms)
        yield amount or Kept(*match.span(), "number", forms)
    for match in _MIXED.finditer(text):
        if int(match[1]) < int(match[2]):
            yield as_is(text, *match.span(), "number")
    for match in _AMOUNT_RANGE.finditer(text):
        if is_number(match[2]) and is_number(match[4]):
            ends = (written(number, decimal)[0] for number in match.group(2, 4))
            forms = number_range(match[2], match[3], match[4], decimal)
            every = amounts((*forms, " bis ".join(ends)), match[1])
            yield Kept(*match.span(), "number", (*every, match[0]))
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token.isalpha():
            continue
        if re.search("[0-9]", token):
            yield _token(text, match.start(), token, decimal)
        elif "_" in token.strip("_"):
            yield as_is(text, *match.span(), "identifier")


def _inches(text: str, decimal: str) -> Iterator[Kept]:
    """Measures with a mark that ends no quotation."""
    is_quoted = False
    for match in _INCHES.finditer(text):
        if match["inches"] and not is_quoted:
            forms = tuple(f'{number}"' for number in written(match["inches"], decimal))
            yield Kept(*match.span(), "number", forms)
        elif match["feet"]:
            end = match.end("feet") if is_quoted else match.end()
            yield as_is(text, match.start(), end, "number")
            is_quoted &= match.end() == match.end("feet")
        else:
            is_quoted = not is_quoted


def _token(text: str, start: int, token: str, decimal: str) -> Kept:
    """What must be kept of a run of characters with a digit."""
    if head := _HEAD.match(token):
        start, token = start + head.end(), token[head.end() :]
    if compound := _COMPOUND.fullmatch(token):
        token = compound[1]
        forms = written(token, decimal)
        forms += tuple(f"{form}-" for form in forms)  # 5-jährig
        return Kept(start, start + len(token), "number", forms)
    rate = _RATE.fullmatch(token)
    if rate and is_number(rate[1]) and text[start - 1 : start] in CURRENCIES:
        token = rate[1]
    parts = token.split("-")
    while len(parts) > 1 and _is_word(parts[-1]):
        parts.pop()  # "sized" of "A4-sized"
    return _of_kind(text, start, "-".join(parts), decimal)


def _of_kind(text: str, start: int, token: str, decimal: str) -> Kept:
    """What a token with a digit is: a number, a date, a range and so on, else an identifier."""
    end = start + len(token)
    amount_of = _SHORT_AMOUNT.fullmatch(token)
    if amount_of and text[start - 1 : start] in CURRENCIES:
        token = amount_of[1] + _LONG_SIGN[amount_of[2]]
    if is_number(token):
        return _number(text, start, token, decimal)
    if (short := _SHORTENED.fullmatch(token)) and is_number(short[1]) and decimal != "as written":
        forms = shortened(written(short[1], decimal), short[2])
        amount = _amount(text, start, end, forms)
        return amount or Kept(start, end, "number", tuple(dict.fromkeys((token, *forms))))
    if match := _ORDINAL.fullmatch(token):
        return Kept(start, end, "ordinal", ordinal(match[1], decimal))
    if match := _DECADE.fullmatch(token):
        return Kept(start, end, "ordinal", decade(match[1]))
    if (match := _MEASURE.fullmatch(token)) and is_number(match[1]):
        numbers = written(match[1], decimal)
        forms = tuple(f"{number}{blank}{match[2]}" for number in numbers for blank in ("", " "))
        return Kept(start, end, "number", forms)
    if decimal != "as written" and (forms := _numeric_date(token)):
        return Kept(start, end, "date", forms)
    if (match := _RANGE.fullmatch(token)) and is_number(match[1]) and is_number(match[3]):
        is_result = decimal != "as written" and _is_result(text, start, end, match)
        result = (f"{match[1]}:{match[3]}",)
        forms = result if is_result else number_range(match[1], match[2], match[3], decimal)
        return Kept(start, end, "number", forms)
    if (match := _PAIR.fullmatch(token)) and is_number(match[1]) and is_number(match[3]):
        if _is_numbered(text, start):
            return as_is(text, start, end, "identifier")
        pairs = both_written(match[1], match[3], decimal)
        forms = tuple(f"{one}{match[2]}{other}{match[4] or ''}" for one, other in pairs)
        return Kept(start, end, "number", forms)
    return as_is(text, start, end, "identifier")


def _is_result(text: str, start: int, end: int, numbers: re.Match[str]) -> bool:
    """Whether a range such as 3-1 is the score of a match."""
    before = text[max(0, start - _CONTEXT) : start]
    is_short = max(len(numbers[1]), len(numbers[3])) < 3
    return bool(is_short and _SCORE_BEFORE.search(before) and _SCORE_AFTER.match(text, end))


def _is_numbered(text: str, start: int) -> bool:
    """Whether what begins at ``start`` is the name of a version, a page or the like."""
    last = text[max(0, start - _CONTEXT) : start].split()[-1:]
    return bool(last) and last[0].strip(".(").lower() in _NUMBERED


def _numeric_date(token: str) -> tuple[str, ...]:
    match = _NUMERIC_DATE.fullmatch(token)
    return numeric_date(match[1], match[2], match[3]) if match else ()


def _is_word(part: str) -> bool:
    return len(part) > 2 and part.isalpha() and part.islower() and part not in _PRERELEASES


def _number(text: str, start: int, number: str, decimal: str) -> Kept:
    end = start + len(number)
    before = text[max(0, start - _CONTEXT) : start]
    last, *earlier = before.split()[::-1] or [""]
    is_apart = before[-1:].isspace()
    if is_apart and last.strip(".(").lower() in _NUMBERED:
        return as_is(text, start, end, "number")
    forms = written(number, decimal)
    if _MINUS.search(before):
        forms = with_sign(forms, "-−–")
        signed_amount = _amount(text, start, end, forms) or Kept(start, end, "number", forms)
        return signed_amount._replace(start=start - 1)
    million = None if decimal == "as written" else _MILLIONS.match(text, end)
    if million and (signed := _sign_and_currency(text, start)):
        sign, currency = signed
        every = millions(with_sign(forms, sign), million[1], currency)
        return Kept(start - 2, million.end(), "number", every)
    is_plain = text[start - 1 : start] in CURRENCIES and not text[start - 2 : start - 1].isalpha()
    if million and is_plain:
        every = millions(forms, million[1], text[start - 1])
        return Kept(start - 1, million.end(), "number", every)
    if amount := _amount(text, start, end, forms):
        return amount
    # "with Windows 7", but not "Buy 3"
    is_name = is_apart and last[:1].isupper() and bool(earlier and _GOES_ON.search(earlier[0]))
    is_measured = last[-1:] in tuple("$€£¥≈=<>±×/") or _UNIT_AFTER.match(text, end) is not None
    is_listed = _LISTED_BEFORE.search(before) or _LISTED_AFTER.match(text, end)
    is_repeated = before[-1:] == "(" and text[end : end + 1] == ")"  # ten (10) apples
    has_reason = is_name or is_measured or is_listed or is_repeated
    if decimal != "as written" and not has_reason:
        forms += numerals(number)
    return Kept(start, end, "number", forms)


def _sign_and_currency(text: str, start: int) -> tuple[str, str] | None:
    """Of "-$" or "$-" before a number that begins at ``start``."""
    signed = _SIGNED.search(text[max(0, start - 3) : start])
    if signed is None:
        return None
    sign = signed[1] or signed[2]
    return sign, signed[0].replace(sign, "")


def _amount(text: str, start: int, end: int, forms: tuple[str, ...]) -> Kept | None:
    """A number with the sign of a currency before it or after it, or with a unit after it."""
    if signed := _sign_and_currency(text, start):
        sign, currency = signed
        every = amounts(with_sign(forms, sign), currency)
        german = tuple(form for form in every if not form.startswith(currency))
        return Kept(start - 2, end, "number", german)
    if text[start - 1 : start] in CURRENCIES:
        start -= 1
        sign = text[start]
        if _AND_MORE.match(text, end):
            end, forms = end + 1, tuple(f"{form}+" for form in forms)
    elif match := _SIGN_AFTER.match(text, end):
        end, sign = match.end(), match[1]
    else:
        return None
    return Kept(start, end, "number", amounts(forms, sign))
