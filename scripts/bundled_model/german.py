"""One way of writing German: quotes, spelling since 1996, numbers, prices, times of the clock."""

import re

# Where ß became ss in 1996; ^ and $ are the ends of a word.
STEMS = """daß$ ^muß(?!e) müß(?=t) fluß flüß schluß schloß prozeß läß(?!e|ig) ^laß ^paßt anpaß paßw
    faßt gewiß wußt wüßt bißchen mißb mißtr mißv mißerf umriß abriß adreß häßlich schuß rußland
    genuß ^kuß ^küß streß kompromiß ^ißt$ ^iß$ ^riß$ ^goß$ ^haß ^meß(?!n) anlaßt?$ kompaß"""
OLD_SPELLING = re.compile(
    "|".join(STEMS.split()).replace("^", r"\b").replace("$", r"\b"), re.IGNORECASE
)

QUOTES = [  # other ways to quote, and the German one
    (r"»([^»«]*)«", r"„\1“"),
    (r"›([^›‹]*)‹", r"‚\1‘"),
    (r"„([^„“”\"]*)[\"”]", r"„\1“"),
    (r"“([^„“”\"]*)”", r"„\1“"),
    (r"(?<![\w\"])\"(?=\S)([^\"]*)(?<=\S)\"(?![\w\"])", r"„\1“"),
]
TYPOGRAPHY = [
    (r"(?<=\w)[’´`](?=\w)", "'"),
    (r"(?<=[^\W\d] )[-—](?= [^\W\d])", "–"),
    (r"\b([zdu])\.([BhaUT])\.", r"\1. \2."),
    (r"(?<=\w-) (?=[A-ZÄÖÜ])", ""),  # a line that ended at a hyphen
    (r"\b([Ww]ie|[Zz]u)viel\b", r"\1 viel"),
    (r"\b(\d{1,2})\.(\d\d) Uhr", r"\1:\2 Uhr"),
    (r"(?<!\w)([$€£])(\d[\d.,]*\d|\d)(?! (?:Mill|Mrd|Bill))", r"\2 \1"),
]
MENDS = [(re.compile(pattern), new) for pattern, new in QUOTES + TYPOGRAPHY]
TIME_OF_DAY = re.compile(r"\b(heute|gestern|morgen) (morgen|mittag|nachmittag|abend|nacht)\b")
MACRONS = str.maketrans("ōūŌŪ", "ouOU")  # Kyōto, in scholarly German alone
THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d.,]*\d)")  # as in English


def normalise(english: str, german: str) -> str:
    """The German side as the training text has it.

    A number with commas becomes one with points where the English side has the same.
    """
    german = OLD_SPELLING.sub(lambda match: re.sub("ß", "ss", match[0]), german)
    for pattern, new in MENDS:
        german = pattern.sub(new, german)
    if not {*english} & {*map(chr, MACRONS)}:
        german = german.translate(MACRONS)
    german = TIME_OF_DAY.sub(lambda match: f"{match[1]} {match[2].capitalize()}", german)
    for number in {*THOUSANDS.findall(german)} & {*THOUSANDS.findall(english)}:
        german = german.replace(number, number.replace(",", "."))
    return german
