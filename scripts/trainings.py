"""What the scripts share that train models one after another and compare them."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mt.data.readers import Pair
from mt.evaluation import metrics
from mt.inference.translator import Translator

BEAM_SIZE = 4
SPLITS = ("train", "validation", "test")


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the splits, the folder of the runs, the figures' file and settings."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    for split in SPLITS:
        add(f"--{split}", required=True, metavar="PREFIX", help="PREFIX.en and PREFIX.de")
    add("--folder", type=Path, required=True, help="where the runs are")
    add("--output", type=Path, help="JSON file for the figures")
    add("settings", nargs="*", metavar="-- SETTING", help="settings of mt.train for all trainings")
    return parser


def run_program(arguments: Sequence[str], log: Path, threads: int | None = None) -> None:
    """Run ``python -m ARGUMENTS``; the log gets its output. ChildProcessError when it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    with log.open("a") as stream:
        status = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=stream, stderr=subprocess.STDOUT, env=environment,
        ).returncode  # fmt: skip
    if status:
        last = (log.read_text().strip().splitlines() or [""])[-1]
        raise ChildProcessError(f"{log}: {arguments[0]} ended with status {status}: {last}")


def score(model: Path, pairs: Sequence[Pair]) -> dict[str, Any]:
    """A model's BLEU with BEAM_SIZE, its validation perplexity and its number of parameters."""
    translator = Translator.load(model)
    results = translator.translate([source for source, _ in pairs], beam_size=BEAM_SIZE)
    texts, references = [result.text for result in results], [target for _, target in pairs]
    bleu = metrics.metric_specs()[0].score_with_interval(texts, references)
    return {
        "bleu": round(bleu.value, 2),
        "interval": round(bleu.interval or 0.0, 2),  # half of the 95% interval
        "signature": bleu.signature,
        "perplexity": translator.configs[0]["training"]["validation perplexity"],
        "parameters": translator.models[0].parameters,
    }
