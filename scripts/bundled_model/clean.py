"""Clean parallel text that names a domain for each line, for a model that may be shipped.

python scripts/bundled_model/clean.py general/train --output cleaned

It reads general/train.en, .de and .domain (.gz too) and writes a table OUTPUT/DOMAIN.tsv for each
domain of DOMAINS, and OUTPUT/report.json: how many pairs were read, dropped for which reason, and
kept. It needs some gigabytes of memory and minutes for a million pairs.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mt.utils import console

with console.exit_at_interrupt():
    import ibm1
    import rules

    from mt.data.preprocessing import DuplicateFilter
    from mt.data.readers import FileReader, Pair
    from mt.utils.atomic import atomic_folder
    from mt.utils.line_io import read_lines

DING = "Ding, a German-English dictionary by Frank Richter"
FREE = "GPL, LGPL, MPL, BSD, MIT, CC-BY or CC-BY-SA, package by package"
MAX_TRANSLATIONS = 6  # of one English sentence, in everyday text; elsewhere 1
# Below this gain by IBM model 1, in nats a word, a pair is misaligned or a free rendering. Short
# strings and everyday sentences may be idioms or compounds, which it cannot see.
MIN_GAIN, MIN_GAIN_SHORT = 1.0, -2.0
SHORT = 6  # words


class Domain(NamedTuple):
    """Where a domain's text comes from, and on which terms."""

    source: str
    terms: str
    everyday: bool = False
    phrases: bool = False  # a dictionary's words and phrases, no texts
    menus: bool = False  # its strings may mark a letter as the key of a menu entry

    @property
    def software(self) -> bool:
        return not (self.everyday or self.phrases)


DOMAINS = {
    "tatoeba": Domain("tatoeba.org, sentences", "CC-BY 2.0 FR", everyday=True),
    "ding-sentences": Domain(DING, "GPL 2 or later", everyday=True),
    "ding-phrases": Domain(DING, "GPL 2 or later", phrases=True),
    "ddtp": Domain("Debian, descriptions of packages", FREE),
    "debian-mo": Domain("Debian, strings of programs", FREE, menus=True),
    "langpacks": Domain("language packs, strings of programs", FREE, menus=True),
    "libreoffice": Domain("LibreOffice, help", FREE, menus=True),
    "manpages": Domain("manual pages", FREE),
    "miscdocs": Domain("handbooks of free programs", FREE, menus=True),
    "wesnoth": Domain("Battle for Wesnoth, dialogues of a game", FREE, menus=True),
}
EVERYDAY = {name for name, domain in DOMAINS.items() if domain.everyday}


def judge(pair: Pair, domain: Domain) -> Pair | str:
    """The mended pair, or the reason to drop it."""
    if not domain.software:
        return rules.judge(pair, rules.MENDS, rules.EVERYDAY_RULES)
    if domain.menus:
        pair = rules.accelerators(*pair)
    return rules.judge(pair, rules.SOFTWARE_MENDS, rules.SOFTWARE_RULES)


def is_new(pair: Pair, domain: Domain, seen: DuplicateFilter, translations: Counter[str]) -> bool:
    """Whether no pair before has the same words, or its English too many translations."""
    english, german = map(rules.key, pair)
    mark = pair[0][-1] + pair[1][-1] if domain.everyday else ""
    most = MAX_TRANSLATIONS if domain.everyday else 1
    if translations[english] >= most or not seen.add((english + mark, german)):
        return False
    translations[english] += 1
    return True


def aligned(pairs: list[tuple[str, Pair]]) -> Iterator[bool]:
    """Whether the words of each pair, which come with their domains, translate each other."""
    for (name, (english, _)), gain in zip(pairs, ibm1.gains([p for _, p in pairs]), strict=True):
        short = DOMAINS[name].everyday or len(english.split()) < SHORT
        yield not gain < (MIN_GAIN_SHORT if short else MIN_GAIN)  # NaN: nobody knows


def clean(corpus: str) -> tuple[dict[str, list[Pair]], dict[str, dict[str, Any]]]:
    """The kept pairs of each domain, and the report on each domain."""
    names = list(read_lines(domain_file(corpus)))
    pairs = list(FileReader(train=corpus).pairs("train"))
    if len(names) != len(pairs):
        raise ValueError(f"{corpus}: {len(names):,} domains of {len(pairs):,} pairs: not aligned")
    rows = list(zip(names, pairs, strict=True))
    # Everyday text first: a string of a program must not push out its sentence.
    rows.sort(key=lambda row: row[0] not in EVERYDAY)
    counts: dict[str, Counter[str]] = {name: Counter() for name in dict.fromkeys(names)}
    seen, translations, fit = DuplicateFilter(), Counter[str](), []
    for name, pair in rows:
        result = judge(pair, DOMAINS[name]) if name in DOMAINS else "terms"
        if isinstance(result, tuple) and not is_new(result, DOMAINS[name], seen, translations):
            result = "duplicates"
        if isinstance(result, str):
            counts[name][result] += 1
        else:
            fit.append((name, result))
    if not fit:
        raise ValueError(f"{corpus}: no pair is left, of the domains {', '.join(counts)}")
    kept: dict[str, list[Pair]] = {name: [] for name in DOMAINS if name in counts}
    for (name, pair), good in zip(fit, aligned(fit), strict=True):
        if good:
            kept[name].append(pair)
        else:
            counts[name]["misaligned"] += 1
    return kept, {name: describe(name, counts[name], len(kept.get(name, []))) for name in counts}


def domain_file(corpus: str) -> Path:
    for path in (Path(f"{corpus}.domain"), Path(f"{corpus}.domain.gz")):
        if path.is_file():
            return path
    raise FileNotFoundError(f"no such file: {corpus}.domain or {corpus}.domain.gz")


def describe(name: str, dropped: Counter[str], kept: int) -> dict[str, Any]:
    origin = DOMAINS.get(name)
    about = {"source": origin.source, "terms": origin.terms} if origin else {}
    read = kept + dropped.total()
    return {**about, "read": read, "kept": kept, "dropped": dict(dropped.most_common())}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", help="prefix of its files .en, .de and .domain (.gz too)")
    parser.add_argument("--output", type=Path, required=True, help="the folder to write")
    args = parser.parse_args(argv)

    def run() -> None:
        if args.output.exists():
            raise FileExistsError(f"{args.output} exists: name another --output")
        kept, report = clean(args.corpus)
        with atomic_folder(args.output) as folder:
            for name, pairs in kept.items():
                lines = ["en\tde", *("\t".join(pair) for pair in pairs)]
                (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", "utf-8")
            text = json.dumps(report, indent=1, ensure_ascii=False)
            (folder / "report.json").write_text(f"{text}\n", "utf-8")
        for name, entry in report.items():
            print(f"{name}: {entry['kept']:,} of {entry['read']:,} pairs kept")

    return console.exit_status("clean", run)


if __name__ == "__main__":
    sys.exit(main())
