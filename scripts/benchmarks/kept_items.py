"""Links, code, placeholders, numbers: how many of them a model's translations keep.

python scripts/benchmarks/kept_items.py --model everyday --output results/kept-items.json

Sentences are made from the frames of kept_frames.tsv and items of all kinds that
``mt.inference.kept`` knows, always the same ones for a seed. The model translates them with and
without the constraints that keep what is found. An item is kept if one of its forms stands in the
translation, as a whole word or number and as often as in the source; a sentence is if all its items
are.
"""

import argparse
import itertools
import random
import re
import string
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarking import check_at_least_one, new_parser, say
from reporting import new_report, table, write_report

from mt.inference.kept import Kept, find_kept
from mt.inference.number_forms import DECIMALS
from mt.inference.terms import TermRules
from mt.inference.translator import Translator
from mt.utils import console

SLOT = "¤"
FRAMES = Path(__file__).with_name("kept_frames.tsv")
WORDS = "house tree river cloud table garden winter letter bread stone window paper".split()  # noqa: SIM905
NAMES = "anna peter maria tom julia max lena paul".split()  # noqa: SIM905
EXTENSIONS = "txt pdf docx csv py json html png xlsx tar.gz md log".split()  # noqa: SIM905


class Item(NamedTuple):
    text: str  # what is put into a frame
    kept: str  # the part that must be kept


class Case(NamedTuple):
    source: str
    kind: str
    items: list[Item]


# ------------------------------------------------------------------------------------- the items

Rng = random.Random


def _url(r: Rng) -> str:
    host = f"{r.choice(WORDS)}-{r.choice(WORDS)}.{r.choice(['com', 'org', 'net', 'de', 'co.uk'])}"
    path = "".join(
        f"/{r.choice(WORDS)}{r.choice(['', r.randrange(99)])}" for _ in range(r.randrange(3))
    )
    query = r.choice(["", "", f"?id={r.randrange(9999)}&lang=en", f"#{r.choice(WORDS)}", "/a_(b)"])
    start = r.choice(["https://", "http://", "www.", "https://www.", "ftp://", ""])
    return f"{start}{host}{path}{query}"


def _email(r: Rng) -> str:
    name = (
        f"{r.choice(NAMES)}{r.choice(['.', '_', '-', '+', ''])}{r.choice(WORDS)}{r.choice(['', 7])}"
    )
    return f"{name}@{r.choice(['', 'mail.'])}{r.choice(WORDS)}.{r.choice(['com', 'org', 'de'])}"


def _file(r: Rng) -> str:
    end = r.choice(["", f"_{r.choice(WORDS)}", f"-{r.randrange(99)}", str(r.randrange(99))])
    name = f"{r.choice(WORDS)}{end}.{r.choice(EXTENSIONS)}"
    one, other = r.choice(WORDS), r.choice(WORDS)
    return r.choice([
        name, name, name.upper(), f"/{one}/{other}", f"~/{one}/{name}", f"./{name}",
        f"{one}/{other}/{name}", f"C:\\{one.title()}\\{name}", f"\\\\{one}\\{other}\\{name}",
    ])  # fmt: skip


def _code(r: Rng) -> str:
    one, other = r.choice(WORDS), r.choice(WORDS)
    return r.choice([
        f"`{one}`", f"`{one}({other})`", f"`{one} --{other} {r.randrange(99)}`", f"`{one}_{other}`",
        f"``{one} ` {other}``", f"`{one}[{r.randrange(9)}] += 1`", f"`if {one} == {other}:`",
    ])  # fmt: skip


def _python(r: Rng) -> str:
    one = r.choice(WORDS)
    return r.choice([
        f"{{{one}}}", "{}", f"{{{r.randrange(9)}}}", f"{{0:.{r.randrange(1, 5)}f}}", "%s", "%r",
        f"%({one})s", f"%({one})d", f"{{{one}!r:>10}}", f"{{{one}.{r.choice(WORDS)}}}",
        f"{{{one} + 1}}", f"{{{one}[0]}}",
    ])  # fmt: skip


def _c(r: Rng) -> str:
    size = r.randrange(1, 20)
    return r.choice([
        "%d", "%i", "%u", "%ld", "%lld", "%zu", "%x", "%c", "%%", "%p", f"%{size}d", f"%0{size}d",
        f"%-{size}s", f"%{size}.2f", "%.3f", f"%{r.randrange(1, 9)}$s", "%*d", "%@", "%+.1e",
    ])  # fmt: skip


def _icu(r: Rng) -> str:
    one, other = r.choice(WORDS), r.choice(WORDS)
    return r.choice([
        f"{{{one}, plural, one {{# {other}}} other {{# {other}s}}}}",
        f"{{{one}, select, yes {{{other}}} other {{no}}}}",
        f"{{{one}, number, percent}}", f"{{{one}, date, long}}", f"{{{one}, number}}", f"{{{one}}}",
        f"{{{one}, plural, =0 {{no {other}}} other {{{{n}} {other}s}}}}", f"{{{{ {one} }}}}",
    ])  # fmt: skip


def _qt(r: Rng) -> str:
    return r.choice([f"%{r.randrange(1, 99)}", f"%L{r.randrange(1, 9)}", "%n", "%Ln", "%1%2"])


def _shell(r: Rng) -> str:
    name = r.choice(WORDS)
    forms = [
        f"${name}",
        f"${name.upper()}",
        f"${{{name}}}",
        f"%{name.upper()}%",
        f"$MY_{name.upper()}",
    ]
    return r.choice(forms)


def _letters(r: Rng, count: int, letters: str = string.ascii_uppercase) -> str:
    return "".join(r.choices(letters, k=count))


def _product(r: Rng) -> str:
    n = r.randrange(10, 9999)
    return r.choice([
        f"{_letters(r, 2)}-{n}", f"{_letters(r, 3)}{n}", f"{_letters(r, 1)}{n}-{_letters(r, 2)}",
        f"#{n}", f"{_letters(r, 2)}-{n}/{r.randrange(99)}", f"{r.choice(WORDS)}_{n}",
        f"{r.choice(WORDS).title()}{n}", f"{n}{_letters(r, 1, 'ABCDEFX')}",
    ])  # fmt: skip


def _version(r: Rng) -> str:
    numbers = [str(r.randrange(20)) for _ in range(r.choice([3, 3, 4]))]
    return r.choice(["v", "", "", "V"]) + ".".join(numbers) + r.choice(["", "", "-beta2", "rc1"])


def _bank(r: Rng) -> str:
    groups = [f"{r.randrange(10_000):04}" for _ in range(4)]
    blank = r.choice([" ", ""])
    return r.choice([
        blank.join([f"DE{r.randrange(10, 99)}", *groups, f"{r.randrange(10, 99)}"]),
        blank.join([f"GB{r.randrange(10, 99)}", _letters(r, 4), *groups]),
        " ".join(groups),
    ])  # fmt: skip


def _phone(r: Rng) -> str:
    area, number = r.randrange(20, 999), r.randrange(100_000, 9_999_999)
    short = r.randrange(1000, 9999)
    return r.choice([
        f"+49 {area} {number}", f"+1 ({area:03}) 555-{short}", f"0{area}/{number}", f"555-{short}",
        f"(0{area}) {number}", f"+44{area}{number}", f"+49 (0){area} {number}",
    ])  # fmt: skip


def _hash(r: Rng) -> str:
    digest = _letters(r, r.choice([7, 12, 40]), "0123456789abcdef")
    own = str(uuid.UUID(int=r.getrandbits(128)))
    address = ":".join(_letters(r, 2, "0123456789ABCDEF") for _ in range(6))
    host = ".".join(str(r.randrange(256)) for _ in range(4))
    return r.choice([f"a1{digest}", own, address, host])


def _iso_date(r: Rng) -> str:
    day = f"{r.randrange(1950, 2050)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}"
    return r.choice([day, day, f"{day}T{r.randrange(24):02}:{r.randrange(60):02}:00Z"])


def _integer(r: Rng) -> str:
    return str(r.choice([r.randrange(2, 13), r.randrange(13, 100), r.randrange(100, 10_000)]))


def _decimal(r: Rng) -> str:
    return r.choice([
        f"{r.randrange(2, 100)}.{r.randrange(1, 100)}", f"{r.randrange(1000, 10**7):,}",
        f"{r.randrange(1000, 10**6):,}.{r.randrange(10, 99)}", f"0.{r.randrange(1, 999)}",
    ])  # fmt: skip


def _amount(r: Rng) -> Item:
    number = r.choice([_integer(r), _decimal(r), _decimal(r)])
    before, after = r.choice(
        [("$", ""), ("€", ""), ("£", ""), ("", "%"), ("", " percent"), ("", " km"), ("", " kg"),
         ("", "°C"), ("", " dollars"), ("", " euros"), ("", " metres")]
    )  # fmt: skip
    return Item(before + number + after, number)


def _measure(r: Rng) -> Item:
    number = f"{r.randrange(10, 300)}{r.choice(['', f'.{r.randrange(1, 9)}'])}"
    text = number + r.choice(["kg", "km", "cm", "GB", "mm", "km/h", "ml"])
    cold = f"-{r.randrange(1, 40)}"
    return r.choice([Item(text, text), Item(f"{cold}°C", cold)])


def _time(r: Rng) -> Item:
    hour, minute, half = r.randrange(1, 13), r.randrange(60), r.choice(["am", "pm", "a.m.", "p.m."])
    text = r.choice([
        f"{hour} {half}", f"{hour}:{minute:02} {half}", f"{r.randrange(24)}:{minute:02}",
        f"{r.randrange(24):02}:{minute:02}", f"{hour}{half[0]}m",
    ])  # fmt: skip
    return Item(text, text)


MONTHS = """
    January February March April May June July August September October November December
    """.split()  # noqa: SIM905


def _date(r: Rng) -> list[Item]:
    """Its text with the day, and with the year."""
    day, month, year = r.randrange(1, 29), r.choice(MONTHS), r.randrange(1700, 2100)
    end = {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
    text, own = r.choice([
        (f"{day} {month} {year}", str(day)), (f"{month} {day}, {year}", str(day)),
        (f"the {day}{end} of {month} {year}", f"{day}{end}"),
        (f"{month} {day}{end}, {year}", f"{day}{end}"), (f"{month[:3]} {day}, {year}", str(day)),
    ])  # fmt: skip
    return [Item(text, own), Item("", str(year))]


def _ordinal(r: Rng) -> str:
    n = r.choice([r.randrange(1, 13), r.randrange(13, 100)])
    end = {1: "st", 2: "nd", 3: "rd"}.get(n % 10 if n not in (11, 12, 13) else 0, "th")
    return f"{n}{end}"


def _decade(r: Rng) -> str:
    return r.choice([f"{r.randrange(180, 203)}0s", f"{r.randrange(2, 10)}0s"])


Made = str | Item | list[Item]
# The kinds of items, what makes one, and the frames that it is put into
KINDS: dict[str, tuple[Callable[[Rng], Made], tuple[str, ...]]] = {
    "URL": (_url, ("name",)),
    "e-mail": (_email, ("name",)),
    "file": (_file, ("name",)),
    "code span": (_code, ("name",)),
    "Python placeholder": (_python, ("name",)),
    "C placeholder": (_c, ("name",)),
    "ICU placeholder": (_icu, ("name",)),
    "Qt placeholder": (_qt, ("name",)),
    "shell variable": (_shell, ("name",)),
    "product code": (_product, ("name",)),
    "version": (_version, ("name",)),
    "bank or card number": (_bank, ("name",)),
    "phone number": (_phone, ("name",)),
    "hash or address": (_hash, ("name",)),
    "ISO date": (_iso_date, ("name", "date")),
    "integer": (_integer, ("number",)),
    "decimal": (_decimal, ("number",)),
    "amount": (_amount, ("amount",)),
    "measure": (_measure, ("amount",)),
    "time": (_time, ("time",)),
    "date": (_date, ("date",)),
    "ordinal": (_ordinal, ("ordinal",)),
    "decade": (_decade, ("decade",)),
}


def read_frames() -> list[tuple[str, str]]:
    """What the items are, and the sentence."""
    lines = FRAMES.read_text(encoding="utf-8").splitlines()
    rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return [(kind, frame) for kind, frame in rows]


def make_cases(count: int, seed: int = 29) -> list[Case]:
    """``count`` sentences, the kinds in turn."""
    rng, every = Rng(seed), read_frames()
    cases: list[Case] = []
    for kind in itertools.islice(itertools.cycle(KINDS), count):
        make, own_frames = KINDS[kind]
        source = rng.choice([frame for name, frame in every if name in own_frames])
        items: list[Item] = []
        while SLOT in source:
            made = make(rng)
            own = made if isinstance(made, list) else [made]
            whole = [Item(item, item) if isinstance(item, str) else item for item in own]
            source = source.replace(SLOT, "".join(item.text for item in whole), 1)
            items += whole
        cases.append(Case(source, kind, items))
    return cases


# ------------------------------------------------------------------------------------- the check


def missing(source: str, translation: str) -> list[Kept]:
    """What must be kept of a source and is not in its translation."""
    taken = bytearray(len(translation))
    lost = []
    # What has the longest forms first: else a number may take a part of another's.
    for kept in sorted(find_kept(source), key=lambda kept: -max(map(len, kept.forms))):
        for form in sorted(kept.forms, key=len, reverse=True):
            places = (match.span() for match in _whole(form, kept.kind).finditer(translation))
            free = next((span for span in places if taken.find(1, *span) < 0), None)
            if free:
                taken[slice(*free)] = b"\1" * (free[1] - free[0])
                break
        else:
            lost.append(kept)
    return lost


def _whole(form: str, kind: str) -> re.Pattern[str]:
    """The form, but not within a word or, unless it is the hour of a time, a longer number."""
    before = r"(?<!\w)" if form[0].isalnum() else ""
    after = r"(?!\w)" if form[-1].isalnum() else ""
    if kind in ("number", "ordinal", "date"):
        before += r"(?<![0-9][.,])" if form[0].isdigit() else ""
        after += r"(?![.,:][0-9])" if form[-1].isdigit() else ""
    return re.compile(before + re.escape(form) + after)


def check(source: str, translation: str) -> bool:
    """Whether a translation keeps everything that must be kept of its source."""
    return not missing(source, translation)


def shares(cases: Sequence[Case], translations: Iterable[str]) -> dict[str, float]:
    """The share of sentences of each kind, and of all, that keep everything, in percent."""
    kept: dict[str, list[bool]] = {}
    for case, translation in zip(cases, translations, strict=True):
        kept.setdefault(case.kind, []).append(check(case.source, translation))
    kept["all"] = [one for own in kept.values() for one in own]
    return {kind: round(100 * sum(own) / len(own), 2) for kind, own in kept.items()}


# ------------------------------------------------------------------------------------ the script


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--model", default="everyday", help="a folder, or everyday (default)")
    parser.add_argument("--cases", type=int, default=2000, help="sentences (default 2000)")
    parser.add_argument("--seed", type=int, default=29)
    parser.add_argument("--decimal", choices=DECIMALS, default="either")
    parser.add_argument("--workers", type=int, help="batches at a time")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--errors", type=int, default=20, help="sentences to print (default 20)")
    parser.add_argument("--output", type=Path, help="a JSON file")
    args = parser.parse_args(argv)
    check_at_least_one(parser, args, "cases")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    return console.exit_status("kept_items", lambda: run(args))


def run(args: argparse.Namespace) -> None:
    cases = make_cases(args.cases, args.seed)
    translator = Translator.load(args.model, device=args.device, workers=args.workers)
    results: dict[str, dict[str, Any]] = {}
    rules = {"without": TermRules(), "kept": TermRules(keep=True, decimal=args.decimal)}
    for name, terms in rules.items():
        start = time.perf_counter()
        done = translator.translate([case.source for case in cases], terms=terms)
        seconds = time.perf_counter() - start
        texts = [translation.text for translation in done]
        results[name] = {"seconds": round(seconds, 1), "kept_percent": shares(cases, texts)}
    wrong = [(c.source, t) for c, t in zip(cases, texts, strict=True) if not check(c.source, t)]
    for source, text in wrong[: args.errors]:
        lost = ", ".join(source[kept.start : kept.end] for kept in missing(source, text))
        say(f"{source}\n  {text}\n  lost: {lost}")
    settings = {"model": args.model, "cases": args.cases, "decimal": args.decimal}
    write_report(args.output, new_report(**settings, results=results))
    columns = [result["kept_percent"] for result in results.values()]
    rows = [(kind, *(f"{column[kind]:.2f}" for column in columns)) for kind in columns[0]]
    rows.append(("seconds", *(f"{result['seconds']:.1f}" for result in results.values())))
    print(table(("kept, %", *results), rows))


if __name__ == "__main__":
    sys.exit(main())
