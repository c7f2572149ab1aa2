"""python -m mt.evaluate: evaluation runs as conf/evaluate.yaml says (Hydra).

Translates a test set with each beam size asked for, prints every score with its signature, and
writes to the run directory hypotheses, scores sentence by sentence, report.json, report.md and
pictures.png. ``hyp=FILE`` scores translations that are there already, of whatever program;
``compare=[A,B]`` sets two such reports side by side instead.
"""

import contextlib
import hashlib
import json
import logging
import platform
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hydra
import sacrebleu
import sacremoses
import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from mt.data import preprocessing
from mt.data.readers import SPLITS, make_reader
from mt.evaluation import compare, metrics, plots
from mt.evaluation import report as reports
from mt.evaluation.report import Report
from mt.inference.options import SearchOptions, load_search_defaults
from mt.inference.translation import Translation
from mt.inference.translator import Translator, pick_device
from mt.model import checkpoint
from mt.utils import console, hydra_app
from mt.utils.line_io import read_lines

log = logging.getLogger("mt.evaluate")

OURS = r"(hypotheses|sentences)\.(beam\d+|given)\.(txt|jsonl)"  # files that a report names
PLURALS = {"reference": "references", "hypothesis": "hypotheses"}


def read_test_set(cfg: DictConfig) -> tuple[list[str], list[str], str]:
    """Sources, references and a name for them. ValueError or OSError says what is wrong."""
    if (cfg.src is None) != (cfg.ref is None):
        raise ValueError("src and ref go together: a file of sources and one of references")
    if cfg.src is not None:
        source, split = make_reader({"kind": "files", "test": [cfg.src, cfg.ref]}), "test"
        name = f"{cfg.src} / {cfg.ref}"
    elif cfg.split not in SPLITS:
        raise ValueError(f"split={cfg.split}: must be one of {', '.join(SPLITS)}")
    else:
        source, split = make_reader(cfg.data), cfg.split
        given = cfg.data.get(split) or cfg.data.get("path") or cfg.data.kind
        name = f"{given} ({split})"
    try:
        return *preprocessing.texts(source, split, cfg.limit), name
    except preprocessing.Empty as error:
        raise ValueError(f"{name}: {error}") from None


def translate(
    translator: Translator, sources: list[str], options: SearchOptions, batch_size: int
) -> tuple[list[Translation], dict[str, Any]]:
    """The translations, and how fast they came; tokens are the model's, eos counted."""
    start = time.perf_counter()
    with tqdm(total=len(sources), unit=" sentences", disable=None) as bar:
        results = translator.translate(
            sources, options, batch_size=batch_size, on_progress=bar.update
        )
    seconds = time.perf_counter() - start
    tokens = sum(result.tokens for result in results)
    return results, {
        "output_tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1),
    }


def machine(device: torch.device) -> str:
    """What computes, in words; not whose it is."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    threads = torch.get_num_threads()
    cpu += f", {threads} thread{'s' if threads > 1 else ''}"
    return f"{torch.cuda.get_device_name(device)}; {cpu}" if device.type == "cuda" else cpu


def _check_languages(cfg: DictConfig, languages: list[str]) -> None:
    """ValueError when data of the other direction are about to be scored."""
    given = [str(cfg.data.src), str(cfg.data.tgt)]
    if cfg.src is None and given == languages[::-1] != languages:
        raise ValueError(
            f"the model translates {' to '.join(languages)}, the data are {' to '.join(given)}: "
            f"set data.src={languages[0]} data.tgt={languages[1]}"
        )


def _listed(given: Any) -> list[Any]:
    """A setting that may be one value or a list of several."""
    return list(given) if OmegaConf.is_list(given) else [given]


class Found(NamedTuple):
    """A column of the report."""

    name: str  # in the names of its files
    facts: Report  # its search, and how fast that was
    hypotheses: list[str]
    log_probs: list[float] | None = None


class Model:
    """What translates the test set, as the configuration says: a model, or several together."""

    def __init__(self, cfg: DictConfig) -> None:
        named = _listed(cfg.model_path)
        self.paths = [
            checkpoint.resolve_model_path(None if name is None else str(name)) for name in named
        ]
        if not named or len({path.resolve() for path in self.paths}) < len(named):
            raise ValueError(f"model_path={named}: name at least one, each once")
        sizes = _listed(cfg.search.beam_size)
        if not sizes or len(set(sizes)) < len(sizes):
            raise ValueError(f"search.beam_size={sizes}: name at least one, each once")
        own = load_search_defaults(self.paths[0]).alpha
        alpha = own if cfg.search.alpha is None else cfg.search.alpha
        self.options = [SearchOptions(size, alpha) for size in sizes]
        self.batch_size = cfg.search.batch_size
        device, precision = str(cfg.device), cfg.precision
        self.translator = Translator.load(self.paths, device, precision, cfg.workers)
        self.languages = self.translator.configs[0].get("languages") or ["en", "de"]

    def about(self, sources: list[str]) -> Report:
        """The hash of an ensemble is that of its members' hashes, a blank between two."""
        tokenizer, configs = self.translator.tokenizer, self.translator.configs
        names = [
            "mt/everyday" if path == checkpoint.BUNDLED_MODEL else str(path) for path in self.paths
        ]
        hashes = [checkpoint.digest(path) for path in self.paths]
        members = [
            {"model": name, "model_sha256": sha256, "model_config": config}
            for name, sha256, config in zip(names, hashes, configs, strict=True)
        ]
        if len(members) == 1:
            found: Report = members[0]
        else:
            sha256 = hashlib.sha256(" ".join(hashes).encode()).hexdigest()
            found = {"model": " + ".join(names), "model_sha256": sha256, "members": members}
        return found | {
            "tokenizer_sha256": hashlib.sha256(tokenizer.proto).hexdigest(),
            "source_tokens": sum(len(ids) + 1 for ids in tokenizer.encode(sources)),
        }

    def curves(self) -> plots.Curves:
        """Of its training; an ensemble had several."""
        return plots.learning_curves(self.paths[0]) if len(self.paths) == 1 else {}

    def searches(self, sources: list[str]) -> Iterator[Found]:
        for option in self.options:
            results, speed = translate(self.translator, sources, option, self.batch_size)
            search = {"beam_size": option.beam_size, "alpha": option.alpha}
            yield Found(
                f"beam{option.beam_size}",
                search | speed,
                [result.text for result in results],
                [round(result.log_prob, 4) for result in results],
            )


def given(cfg: DictConfig, sentences: int) -> Found:
    """The translations of the file ``hyp``. ValueError unless it has a line for each sentence."""
    lines = list(read_lines(str(cfg.hyp)))
    lines = lines if cfg.limit is None else lines[: cfg.limit]
    if len(lines) != sentences:
        raise ValueError(f"hyp={cfg.hyp}: {len(lines):,} lines for {sentences:,} sentences")
    _warn(cfg.tokenized, hypothesis=lines)
    return Found("given", {"beam_size": None, "alpha": None}, lines)


def _check(cfg: DictConfig) -> None:
    metrics.bootstrap_seed()  # what is wrong with it shows before the work
    hydra_app.check_sections(cfg, "data", "search")
    if not isinstance(cfg.tokenized, bool):
        raise ValueError(f"tokenized={cfg.tokenized!r}: must be true or false")
    if OmegaConf.is_list(cfg.hyp):
        raise ValueError("hyp: name one file; each has a report of its own, and compare=[A,B]")
    if cfg.hyp is not None and cfg.model_path is not None:
        raise ValueError("hyp and model_path: either score a file or what a model translates")


def _warn(tokenized: bool, **sides: list[str]) -> None:
    for side in {"reference", "hypothesis"} & sides.keys():
        if metrics.look_tokenized(sides[side]) not in (None, tokenized):
            log.warning(
                f"the {PLURALS[side]} do not look tokenised: tokenized=true is for text that is"
                if tokenized
                else f"the {PLURALS[side]} look tokenised: tokenized=true scores such text as it is"
            )
    for side, lines in sides.items():
        if blank := [i for i, line in enumerate(lines, 1) if not line.strip()]:
            log.warning(f"{len(blank):,} {side} line(s) are empty, the first is line {blank[0]:,}")


def files_before(run_dir: Path) -> set[str]:
    """Those that a report there names. ValueError when report.json is somebody else's."""
    file = run_dir / "report.json"
    if not file.exists():
        return set()
    try:
        runs = json.loads(file.read_text("utf-8"))["runs"]
        names = {run[kind] for run in runs for kind in ("hypotheses", "sentence_scores")}
    except (ValueError, TypeError, KeyError, RecursionError):
        names = set()
    if names and all(re.fullmatch(OURS, str(name)) for name in names):
        return names
    raise ValueError(
        f"{file}: no report of mt.evaluate: name another hydra.run.dir, it would be lost"
    )


def run(cfg: DictConfig, run_dir: Path) -> None:
    _check(cfg)
    before = files_before(run_dir)
    model = Model(cfg) if cfg.hyp is None else None
    sources, references, name = read_test_set(cfg)
    languages = [str(cfg.data.src), str(cfg.data.tgt)]
    if model is not None:
        _check_languages(cfg, model.languages)
        languages = model.languages
    target = languages[1] if languages[1].isalpha() else "de"  # a column's number says nothing
    _warn(cfg.tokenized, source=sources, reference=references)
    device = pick_device(str(cfg.device))
    comet = metrics.Comet(str(cfg.comet), device.type == "cuda") if cfg.comet else None
    nobody = {"model": str(cfg.hyp), "model_sha256": None, "source_tokens": None}
    report: Report = {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "-m", "mt.evaluate", *sys.argv[1:]]),
        "machine": machine(device),
        **(nobody if model is None else model.about(sources)),
        "data": name,
        "sentences": len(sources),
        "source_sha256": reports.digest(sources),
        "reference_sha256": reports.digest(references),
        "target": target,
        "tokenized": cfg.tokenized,
        "config": OmegaConf.to_container(cfg, resolve=True),
        "versions": {
            "mt": metrics.package_version("mt"),
            "torch": torch.__version__,
            "sacrebleu": sacrebleu.__version__,
            "sacremoses": sacremoses.__version__,
        },
        "runs": [],
    }
    sentences, unfinished = [], []
    for found in [given(cfg, len(sources))] if model is None else model.searches(sources):
        if model is not None:  # it was work, whatever happens to the rest
            run_dir.mkdir(parents=True, exist_ok=True)
            unfinished.append(run_dir / f"unfinished.{found.name}.txt")
            reports.write(unfinished[-1], reports.text_of(found.hypotheses))
        scores, rows = reports.score(sources, references, found.hypotheses, target, cfg.tokenized)
        for row, log_prob in zip(rows, found.log_probs or (), strict=False):
            row["log_prob"] = log_prob
        files = {
            "hypotheses": f"hypotheses.{found.name}.txt",
            "sentence_scores": f"sentences.{found.name}.jsonl",
        }
        report["runs"].append(found.facts | scores | files)
        sentences.append(rows)
    failed = None
    if comet is not None:
        sides = (languages[0], target)
        try:
            learned = [reports.comet_scores(x, comet, sides, cfg.tokenized) for x in sentences]
        except ValueError as error:  # the rest is told all the same
            failed = error
            if before:
                run_dir, before = run_dir / "without-comet", set()
        else:
            for scores, rows, one in zip(report["runs"], sentences, learned, strict=True):
                reports.add_comet(scores, rows, one)
    write(run_dir, report, sentences, before)
    for path in unfinished:
        path.unlink()
    curves = {} if model is None else model.curves()
    plots.draw_evaluation(run_dir / "pictures.png", report, sentences, curves)
    with console.reader_may_go():
        print(f"{reports.render(report)}\n\nreport  {run_dir}/report.md")
    if failed is not None:
        raise ValueError(f"comet={cfg.comet}: {failed}; {run_dir}/report.md is without it")


def write(
    run_dir: Path, report: Report, sentences: list[list[dict[str, Any]]], before: set[str]
) -> None:
    """All files of the record but the pictures, in place of those of one ``before``."""
    texts = {}
    for found, rows in zip(report["runs"], sentences, strict=True):
        texts[found["hypotheses"]] = reports.text_of(row["hypothesis"] for row in rows)
        texts[found["sentence_scores"]] = reports.json_lines(rows)
    texts["report.md"] = reports.markdown(report, sentences[-1])
    texts["report.json"] = reports.json_text(report)
    run_dir.mkdir(parents=True, exist_ok=True)
    reports.write_all(run_dir, texts)
    for name in before - texts.keys():
        (run_dir / name).unlink(missing_ok=True)


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="evaluate")
def main(cfg: DictConfig) -> None:
    logging.basicConfig(format="mt.evaluate: %(message)s", stream=sys.stderr)
    run_dir = hydra_app.run_folder()
    with hydra_app.setting_up("mt.evaluate", run_dir, *hydra_app.USER_ERRORS):
        if cfg.compare is None:
            run(cfg, run_dir)
        else:
            compare.run(_listed(cfg.compare), run_dir)


if __name__ == "__main__":
    hydra_app.start("mt.evaluate", main)
