"""Score a model on every test set of the bundled one: sacreBLEU and chrF, greedy and with its beam.

python scripts/bundled_model/scores.py everyday --data DATA --output results/everyday.json

DATA has the folders tatoeba, news and multi30k, with files such as tatoeba/val.en.gz. The test
splits of the phrasebook come with the package. `--search` scores length penalties on
tatoeba/val alone, by which a model's own search is chosen before any test set is read.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tabulate import tabulate

from mt.utils import console

with console.exit_at_interrupt():
    from mt.data.phrasebook import PARTS
    from mt.evaluation import metrics, report
    from mt.inference.options import SearchOptions
    from mt.inference.translator import Translator
    from mt.utils.line_io import read_lines

BEAM_SIZE, ALPHAS = 4, (0.6, 1.0, 1.2, 1.4)
FILES = [
    "tatoeba/val",
    "tatoeba/test_v2020-07-28",
    "news/newstest2014",
    "multi30k/test_2016_flickr",
]
SHOWN = ("sacreBLEU", "chrF")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="what mt.translate takes as --model")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA")
    parser.add_argument("--search", action="store_true", help="choose the search, on tatoeba/val")
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    args = parser.parse_args(argv)

    def run() -> None:
        results = search(args.model, args.data) if args.search else score(args.model, args.data)
        report.write_json(args.output, results)

    return console.exit_status("scores", run)


def search(model: str, data: Path) -> dict[str, Any]:
    """sacreBLEU on tatoeba/val by beam size and alpha."""
    translator = Translator.load(model)
    sources, references = (
        list(read_lines(data / f"tatoeba/val.{side}.gz")) for side in ("en", "de")
    )
    rows = []
    for beam_size, alpha in [(1, 0.6), *((BEAM_SIZE, alpha) for alpha in ALPHAS)]:
        results = translator.translate(sources, SearchOptions(beam_size, alpha))
        bleu = metrics.bleu([result.text for result in results], references)
        rows.append({"beam_size": beam_size, "alpha": alpha, bleu.name: round(bleu.value, 2)})
        print(rows[-1], flush=True)
    return {"set": "tatoeba/val", "rows": rows}


def score(model: str, data: Path) -> dict[str, Any]:
    """What mt.evaluate reports of each test set, with the command."""
    for file in (data / f"{name}.{side}.gz" for name in FILES for side in ("en", "de")):
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file")
    where = model if not Path(model).exists() else str(Path(model).resolve())
    sets = {name: [f"src={name}.en.gz", f"ref={name}.de.gz"] for name in FILES}
    sets |= {f"phrasebook, {part}": ["data=phrasebook", f"data.parts=[{part}]"] for part in PARTS}
    tests, rows = {}, []
    for name, arguments in sets.items():
        with tempfile.TemporaryDirectory() as folder:
            options = [*arguments, f"model_path={where}", f"hydra.run.dir={folder}"]
            command = [sys.executable, "-m", "mt.evaluate", *options]
            done = subprocess.run(command, cwd=data, stdout=subprocess.DEVNULL, check=False)
            if done.returncode:  # it has said why
                raise ValueError(f"{name}: mt.evaluate ended with status {done.returncode}")
            full = json.loads((Path(folder) / "report.json").read_text("utf-8"))
        tests[name] = {"command": " ".join(["python -m mt.evaluate", *arguments]), **short(full)}
        rows.append([name, full["sentences"], *values(full)])
        print(tabulate(rows, floatfmt=".2f"), flush=True)
    return {"machine": full["machine"], "versions": full["versions"], "tests": tests}


def short(full: dict[str, Any]) -> dict[str, Any]:
    """A report without what only its own folder needs."""
    runs = [
        {name: run[name] for name in ("beam_size", "alpha", "scores", "length_ratio")}
        for run in full["runs"]
    ]
    return {name: full[name] for name in ("date", "sentences", "model_sha256")} | {"runs": runs}


def values(full: dict[str, Any]) -> list[float]:
    """sacreBLEU and chrF of each search."""
    scores = [{score["name"]: score["value"] for score in run["scores"]} for run in full["runs"]]
    return [run[name] for run in scores for name in SHOWN]


if __name__ == "__main__":
    sys.exit(main())
