"""How often a translation has a term and also the word that the model would have written for it.

python scripts/benchmarks/term_places.py tatoeba/val --output results/term-places.json

Each word of TABLE becomes another than the usual one in sentences of PREFIX.en (.gz too) that have
it: with the search alone, and with the further searches of mt.inference.term_places.
"""

import re
import sys
import time
from typing import Any
from unittest import mock

import torch
from benchmarking import new_parser
from reporting import new_report, write_report

from mt.data.readers import FileReader
from mt.inference import translator as translators
from mt.inference.glossary import Glossary
from mt.inference.terms import TermRules
from mt.inference.translator import Translator
from mt.utils import console

TABLE = {  # the term, its translation here, and the usual one
    "house": ("Gebäude", "Haus"), "car": ("Wagen", "Auto"), "doctor": ("Mediziner", "Arzt"),
    "children": ("Kids", "Kinder"), "money": ("Kohle", "Geld"), "street": ("Gasse", "Straße"),
    "book": ("Band", "Buch"), "train": ("Bahn", "Zug"), "friend": ("Kumpel", "Freund"),
    "room": ("Kammer", "Zimmer"), "picture": ("Gemälde", "Bild"), "boy": ("Bub", "Junge"),
    "teacher": ("Pauker", "Lehrer"), "window": ("Luke", "Fenster"), "dog": ("Köter", "Hund"),
    "problem": ("Schwierigkeit", "Problem"), "weather": ("Witterung", "Wetter"),
    "letter": ("Schreiben", "Brief"),
}  # fmt: skip
MOST = 12  # sentences of a term


def count(translator: Translator, lines: list[str]) -> dict[str, Any]:
    counts = {"sentences": 0, "with the term": 0, "with the usual word too": 0}
    start = time.perf_counter()
    for source, (target, usual) in TABLE.items():
        own = [line for line in lines if re.search(rf"\b{source}\b", line)][:MOST]
        rules = TermRules(Glossary([(source, [target])]))
        for result in translator.translate(own, terms=rules, split=True):
            text = result.text.casefold()
            has_term, has_usual = (word[:4].casefold() in text for word in (target, usual))
            counts["sentences"] += 1
            counts["with the term"] += has_term
            counts["with the usual word too"] += has_term and has_usual
    return counts | {"seconds": round(time.perf_counter() - start, 1)}


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("prefix", metavar="PREFIX")
    parser.add_argument("--model")
    parser.add_argument("--output", required=True, help="the JSON file to write")
    args = parser.parse_args()
    torch.set_num_threads(1)
    lines = [source for source, _ in FileReader(test=args.prefix).pairs("test")]
    translator = Translator.load(args.model, device="cpu", workers=1)
    translator.translate(lines[:8], terms=TermRules(keep=True))  # warm up
    assert translator.aligner
    with mock.patch.object(translators, "may_stand_elsewhere", return_value=False):
        alone = count(translator, lines)
    runs = {"the search alone": alone, "searched again": count(translator, lines)}
    write_report(args.output, new_report(runs=runs))
    for name, run in runs.items():
        print(f"{name}: {run}")


if __name__ == "__main__":
    sys.exit(console.exit_status("term_places", main))
