"""Code, addresses, files and placeholders in a text, which stay as they are (``kept``).

All patterns take linear time, for hostile text too: what repeats can be read in one way only, and
a match begins only where none of its characters stands before.
"""

import ipaddress
import re
from collections.abc import Iterator
from typing import NamedTuple


class Kept(NamedTuple):
    """A part of a source, ``text[start:end]``, that a translation must have in one of its forms."""

    start: int
    end: int
    kind: str  # one of KINDS
    forms: tuple[str, ...]  # the likeliest first


def as_is(text: str, start: int, end: int, kind: str) -> Kept:
    return Kept(start, end, kind, (text[start:end],))


# Code, links, files

_CODE = re.compile(
    r"(?<!`)(?:`[^`\n]+`|``(?!`)(?:[^`]|`(?!`))+``|```(?!`)(?:[^`]|`{1,2}(?!`))+```)(?!`)"
)
_TOP_LEVEL = "com|org|net|edu|gov|info|io|dev|app|ai|eu|de|at|ch|uk|fr|nl|es|pl|be|us|ca|au|jp"
_URL = re.compile(
    rf"""(?<![A-Za-z0-9_])
    (?: (?: [A-Za-z][A-Za-z0-9+.-]{{1,20}}:// | [wW]{{3}}\. | (?:mailto|tel|urn|doi):(?=\S) )
        [^\s<>"“”„«»`]+
      | (?<![.@-]) (?:[A-Za-z0-9-]+\.)+ (?:{_TOP_LEVEL}) (?![\w@-]|\.\w)
        (?: (?::[0-9]{{1,5}})? [/?#] [^\s<>"“”„«»`]* )?
    )""",
    re.VERBOSE,
)
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f:]{3,39}(?![\w:])")
_EMAIL = re.compile(
    r"(?<![\w.+%-])[\w.+%-]{1,64}(?:'[\w.+%-]{1,64}){0,2}@(?:[\w-]+\.)+[^\W\d_]{2,20}(?![\w-])"
)
_ACCOUNT = re.compile(r"(?<![\w.@/-])@[A-Za-z_]\w{0,49}(?![\w@/]|[.-]\w)")  # @anna_k
_EMOTICON = re.compile(r"(?<!\S);-?[)(DP](?!\w)")  # others are common enough to be learnt
_EXTENSION = re.compile(
    r"""\w\.(?: 7z|aac|apk|avi|bak|bat|bin|bmp|bz2|cfg|class|conf|cpp|crt|csv|css|dat|deb|dll|dmg
    | docx?|env|epub|exe|flac|gif|gz|hpp?|html?|ico|ini|ipynb|iso|jar|java|jpe?g|jsonl?|jsx?|key
    | lock|log|md|mkv|mov|mp[34]|mpeg|od[pst]|ogg|otf|pdf|pem|php|png|po|pot|pptx?|ps1|pyc?|rar|rpm
    | rst|rtf|sh|sql|sqlite|srt|svg|tar|tbx|te?xt|tgz|tiff?|tmp|tmx|toml|tsv|tsx?|ttf|vtt|wav|webm
    | webp|whl|woff2?|xlsx?|xml|xz|ya?ml|zip|[ch]|cs|go|js|kt|rb|rs )\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_NEW_SENTENCE = re.compile(  # "I am tired.Go home"
    r"\.(?:Bak|Bat|Bin|Class|Go|Jar|Java|Key|Lock|Log|Pot|Tar|Text|Zip)\Z"
)
_RUN = re.compile(r"(?<![\w.~+@%${}/\\<-])[\w.~+@%${}/-]+")
_PATH = re.compile(
    r"(?:~\w*|\.{1,2}|\$[A-Za-z_]\w*)?/[.~+@%$-]*\w[\w.~+@%$/-]*\Z|\.(?:env|git|bash)\w*\Z"
)
_PART = r"[\w.$~+()%-]"
_WINDOWS = re.compile(
    rf"(?<!\w)(?:[A-Za-z]:\\{{1,2}}|\\\\(?=\w))(?:{_PART}+(?: {_PART}+){{0,3}}\\{{1,2}})*{_PART}*"
)


def find_code(text: str) -> Iterator[Kept]:
    return (as_is(text, *match.span(), "code") for match in _CODE.finditer(text))


def find_links(text: str) -> Iterator[Kept]:
    for match in _URL.finditer(text):
        end = match.start() + _length(match[0])
        if not text[match.start() : end].isalpha():  # "www..."
            yield as_is(text, match.start(), end, "url")
    for match in _EMAIL.finditer(text):
        yield as_is(text, *match.span(), "e-mail")
    for match in _ACCOUNT.finditer(text):
        yield as_is(text, *match.span(), "identifier")
    for match in _IPV6.finditer(text):
        if _is_ipv6(match[0]):
            yield as_is(text, *match.span(), "identifier")


def find_emoticons(text: str) -> Iterator[Kept]:
    return (as_is(text, *match.span(), "identifier") for match in _EMOTICON.finditer(text))


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _length(url: str) -> int:
    """The characters of an address without the marks of the sentence around it."""
    length = len(url)
    surplus = {end: url.count(end) - url.count(begin) for begin, end in ("()", "[]", "{}")}
    while length:
        last = url[length - 1]
        if surplus.get(last, 0) > 0:
            surplus[last] -= 1
        elif last not in ".,;:!?'’‘*_…":
            break
        length -= 1
    return length


def find_files(text: str) -> Iterator[Kept]:
    for match in _RUN.finditer(text):
        run = match[0].rstrip(".-+@%$~")
        is_file = _EXTENSION.search(run, max(0, len(run) - 9)) and not _NEW_SENTENCE.search(run)
        if is_file or _PATH.match(run):
            yield as_is(text, match.start(), match.start() + len(run), "file")
    for match in _WINDOWS.finditer(text):
        run = match[0].rstrip(".-)")
        yield as_is(text, match.start(), match.start() + len(run), "file")


# Placeholders

_PERCENT = re.compile(
    r"""%%
    | (?<![0-9]) % [A-Za-z] (?: [-/:.,]? %[A-Za-z] )+ (?!\w)  # %Y-%m-%d
    | (?<![0-9]) (?: %L?[0-9]{1,2} ){1,9} (?![0-9$A-Za-z]|\.[0-9])  # of Qt
    | (?<![0-9]) % (?:
        (?: \(\w{1,50}\) | [0-9]{1,2}\$ )?
        [-+#0]{0,5} (?:\*|[0-9]{1,5})? (?:\.(?:\*|[0-9]{1,5}))? (?:hh?|ll?|[Lqjzt])?
        [diouxXeEfFgGcrsaApn@] (?! [^\W\d_]{3} (?<!min) )
      | Ln (?!\w)
      | [A-Za-z] (?![^\W\d_])  # of a date
      | [A-Z_][A-Z0-9_]{1,50}%  # of the Windows shell
    )
    | (?<![\w$]) \$ [A-Za-z_]\w*""",
    re.VERBOSE,
)
_ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6});")  # &amp;
_BRACE = re.compile(r"[{}]")
_ICU = re.compile(
    r"\{\s*[\w.-]+\s*,\s*"
    r"(?:plural|select|selectordinal|number|date|time|spellout|ordinal|duration|choice)\s*[,}]"
)
_EXPRESSION = re.compile(r"[-+*/%()\[\]=<>|!:.\"'_$]")  # prose in braces has none of these
LONGEST = 2000  # characters of a placeholder in braces


def find_placeholders(text: str) -> Iterator[Kept]:
    for pattern in (_PERCENT, _ENTITY):
        for match in pattern.finditer(text):
            yield as_is(text, *match.span(), "placeholder")
    begun: list[int] = []
    whole: list[tuple[int, int]] = []  # pairs of braces that are in no other pair
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            begun.append(match.start())
        elif begun:
            start = begun.pop()
            while whole and whole[-1][0] > start:
                whole.pop()
            whole.append((start, match.end()))
    for start, end in whole:
        if end - start <= LONGEST and _is_placeholder(text[start:end]):
            # ${x} of a shell, #{x} and %{x} of Ruby
            before = start - (start > 0 and text[start - 1] in "$#%@")
            yield as_is(text, before, end, "placeholder")


def _is_placeholder(braces: str) -> bool:
    content = braces.strip("{}").strip()
    return (
        not any(map(str.isspace, content))
        or _ICU.match(braces) is not None
        or (braces.startswith(("{{", "{%")) and braces.endswith(("}}", "%}")))
        or ("{" not in content and _EXPRESSION.search(content) is not None)
    )
