"""python -m mt.evaluate: evaluation runs as conf/evaluate.yaml says (Hydra).

Translates a test set with each beam size, prints every score with its signature, and writes to the
run directory the hypotheses, the scores sentence by sentence, report.json, report.md and
pictures.png. ``hyp=FILE`` scores existing translations of any program; ``compare=[A,B]`` compares
two such reports instead.
"""

import contextlib
import hashlib
import logging
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from mt.utils import console

with console.exit_at_interrupt():
    import hydra
    import sacrebleu
    import sacremoses
    import torch
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import DictConfig, OmegaConf

    from mt.data import preprocessing
    from mt.data.readers import SPLITS, CorpusReader, FileReader, PhrasebookReader
    from mt.data.text_reader import TextReader
    from mt.evaluation import compare, metrics, plots
    from mt.evaluation import report as reports
    from mt.evaluation.comet import Comet
    from mt.evaluation.learning_curves import Curves, learning_curves
    from mt.evaluation.report import Report, Row
    from mt.inference.options import SearchOptions, load_search_defaults
    from mt.inference.translator import Translator
    from mt.model import checkpoint
    from mt.model.device import pick_device
    from mt.model.model_path import resolve_model_path
    from mt.utils import hydra_app
    from mt.utils.atomic import atomic_write, check_not_input
    from mt.utils.checks import check_bool, check_int
    from mt.utils.line_io import read_lines
    from mt.utils.locks import exclusive_lock

log = logging.getLogger("mt.evaluate")

# Settings of a corpus (conf/data) that would have no effect here.
TRAINING_ONLY = {"clean", "tokens_per_step", "max_tokens", "noise", "workers", "cache_dir"}
TRAINING_ONLY |= {"limit", "validation_limit"}


@dataclass(frozen=True)
class EvaluateConfig:
    """conf/evaluate.yaml, read once; the comments there say what the settings mean."""

    reader: CorpusReader  # of data, or of the files src and ref
    split: str  # its part that is the test set
    test_set: str  # its name in the report
    own_files: bool  # the test set is src and ref
    languages: list[str]  # data.src and data.tgt
    model_paths: list[str | None]
    hyp: str | None
    tokenized: bool
    limit: int | None
    device: str
    precision: str
    workers: int | None
    comet: str | None
    beam_sizes: list[int]
    alpha: float | None
    batch_size: int
    resolved: dict[str, Any]  # all settings, as the report has them

    def __post_init__(self) -> None:
        check_bool("tokenized", self.tokenized)
        check_int("limit", self.limit, optional=True)
        if not self.beam_sizes or len(set(self.beam_sizes)) < len(self.beam_sizes):
            raise ValueError(f"search.beam_size={self.beam_sizes}: name at least one, each once")
        if self.hyp is not None and self.model_paths != [None]:
            raise ValueError("hyp and model_path: either score a file or what a model translates")


def read_config(cfg: DictConfig) -> EvaluateConfig:
    """Raises ValueError, TypeError or an error of OmegaConf when a setting is wrong."""
    hydra_app.check_sections(cfg, "data", "search")
    hydra_app.check_names(cfg, "evaluate")
    for override in HydraConfig.get().overrides.task:
        section, _, name = override.lstrip("+").partition("=")[0].partition(".")
        if section == "data" and name.partition(".")[0] in TRAINING_ONLY:
            hint = ": set limit" if name == "limit" else ""
            raise ValueError(f"data.{name} is for training, mt.evaluate does not use it{hint}")
    for name in ("model_path", "src", "ref", "hyp", "comet"):
        if any(str(value).strip() == "" for value in as_list(cfg[name])):
            raise ValueError(f"{name} is empty: name a file or a folder, or leave it out")
    if OmegaConf.is_list(cfg.hyp):
        raise ValueError("hyp: name one file; each has a report of its own, and compare=[A,B]")
    if (cfg.src is None) != (cfg.ref is None):
        raise ValueError("src and ref go together: a file of sources and one of references")
    reader: CorpusReader
    if cfg.src is not None:
        reader = FileReader(test=[cfg.src, cfg.ref], src=cfg.data.src, tgt=cfg.data.tgt)
        split = "test"
        test_set = f"{cfg.src} / {cfg.ref}"
    elif cfg.split not in SPLITS:
        raise ValueError(f"split={cfg.split}: must be one of {', '.join(SPLITS)}")
    else:
        reader, split = hydra_app.instantiate(cfg, "data.reader"), cfg.split
        if isinstance(reader, TextReader):
            raise ValueError("data=text has no translations: mt.train reports its perplexity")
        name = cfg.data.get(split) or cfg.data.get("path") or "phrasebook"
        if isinstance(reader, PhrasebookReader) and list(reader.parts) != ["grammar"]:
            name = f"phrasebook: {', '.join(reader.parts)}"
        test_set = f"{name} ({split})"
    return EvaluateConfig(
        reader=reader,
        split=split,
        test_set=test_set,
        own_files=cfg.src is not None,
        languages=[str(name).rpartition(".")[2] for name in (cfg.data.src, cfg.data.tgt)],
        model_paths=[None if path is None else str(path) for path in as_list(cfg.model_path)],
        hyp=None if cfg.hyp is None else str(cfg.hyp),
        device=str(cfg.device),
        comet=None if cfg.comet is None else str(cfg.comet),
        beam_sizes=as_list(cfg.search.beam_size),
        alpha=cfg.search.alpha,
        batch_size=cfg.search.batch_size,
        resolved=cast("dict[str, Any]", OmegaConf.to_container(cfg, resolve=True)),
        **{name: cfg[name] for name in ("tokenized", "limit", "precision", "workers")},
    )


def as_list(value: Any) -> list[Any]:
    """A setting that may be one value or a list of several."""
    return list(value) if OmegaConf.is_list(value) else [value]


class SystemOutput(NamedTuple):
    """The translations of the test set by one search, or those of a file."""

    name: str  # in the names of its files
    search: Report  # its settings, and how fast it was
    hypotheses: list[str]
    log_probs: list[float] | None = None


class EvaluatedModel:
    """The model, or the ensemble, that translates the test set."""

    def __init__(self, config: EvaluateConfig) -> None:
        self.paths = [resolve_model_path(path) for path in config.model_paths]
        if not self.paths or len({path.resolve() for path in self.paths}) < len(self.paths):
            raise ValueError(f"model_path={config.model_paths}: name at least one, each once")
        default = load_search_defaults(self.paths[0]).alpha
        alpha = default if config.alpha is None else config.alpha
        self.options = [SearchOptions(beam_size, alpha) for beam_size in config.beam_sizes]
        self.batch_size = config.batch_size
        self.translator = Translator.load(
            self.paths, config.device, config.precision, config.workers
        )
        self.languages = list(self.translator.languages)

    def description(self, sources: list[str]) -> Report:
        """Names, configurations and hashes for the report.

        The hash of an ensemble is that of its members' hashes, joined by blanks.
        """
        tokenizer = self.translator.tokenizer
        bundled = checkpoint.BUNDLED_MODEL
        names = ["mt/everyday" if path == bundled else str(path) for path in self.paths]
        hashes = [checkpoint.digest(path) for path in self.paths]
        facts = zip(names, hashes, self.translator.configs, strict=True)
        keys = ("model", "model_sha256", "model_config")
        members: list[Report] = [dict(zip(keys, values, strict=True)) for values in facts]
        sha256 = hashlib.sha256(" ".join(hashes).encode()).hexdigest()
        ensemble = {"model": " + ".join(names), "model_sha256": sha256, "members": members}
        return (members[0] if len(members) == 1 else ensemble) | {
            "tokenizer_sha256": hashlib.sha256(tokenizer.proto).hexdigest(),
            "source_tokens": sum(len(ids) + 1 for ids in tokenizer.encode(sources)),
        }

    def learning_curves(self) -> Curves:
        """Those of its training; none for an ensemble."""
        return learning_curves(self.paths[0]) if len(self.paths) == 1 else {}

    def translate(self, sources: list[str]) -> Iterator[SystemOutput]:
        """The output of each search; its tokens are the model's, eos counted."""
        for options in self.options:
            start = time.perf_counter()
            with console.progress_bar(len(sources), "sentences") as bar:
                results = self.translator.translate(
                    sources, options, batch_size=self.batch_size, on_progress=bar.update
                )
            seconds, tokens = time.perf_counter() - start, sum(result.tokens for result in results)
            search = {
                "beam_size": options.beam_size, "alpha": options.alpha, "output_tokens": tokens,
                "seconds": round(seconds, 3), "tokens_per_second": round(tokens / seconds, 1),
            }  # fmt: skip
            hypotheses = [result.text for result in results]
            log_probs = [round(result.log_prob, 4) for result in results]
            yield SystemOutput(f"beam{options.beam_size}", search, hypotheses, log_probs)


def read_test_set(config: EvaluateConfig) -> tuple[list[str], list[str]]:
    """Sources and references. ValueError or OSError says what is wrong with them."""
    try:
        return preprocessing.texts(config.reader, config.split, config.limit)
    except preprocessing.EmptyCorpusError as error:
        raise ValueError(f"{config.test_set}: {error}") from None


def read_hypotheses(config: EvaluateConfig, num_sentences: int) -> Iterator[SystemOutput]:
    """The translations of the file ``hyp``. ValueError unless it has a line for each sentence."""
    lines = list(read_lines(str(config.hyp)))[: config.limit]
    if len(lines) != num_sentences:
        raise ValueError(f"hyp={config.hyp}: {len(lines):,} lines for {num_sentences:,} sentences")
    warn_of_odd_text(config.tokenized, hypothesis=lines)
    yield SystemOutput("given", {"beam_size": None, "alpha": None}, lines)


def warn_of_poor_output(output: SystemOutput, sources: list[str]) -> None:
    """Warn of translations that show that the model is of no use."""
    pairs = zip(sources, output.hypotheses, strict=True)
    if blank := sum(not text.strip() for source, text in pairs if source.strip()):
        log.warning(f"{output.name}: {blank:,} of {len(sources):,} translations are empty")
    if len(set(sources)) > 1 and len(set(output.hypotheses)) == 1:
        log.warning(f"{output.name}: the model says the same for every sentence")


def warn_of_odd_text(tokenized: bool, **sides: list[str]) -> None:
    """Warn of blank lines, and of text that contradicts the setting ``tokenized``."""
    plurals = {"reference": "references", "hypothesis": "hypotheses"}
    for side in plurals.keys() & sides.keys():
        if metrics.looks_tokenized(sides[side]) not in (None, tokenized):
            log.warning(
                f"the {plurals[side]} do not look tokenised: tokenized=true is for text that is"
                if tokenized
                else f"the {plurals[side]} look tokenised: tokenized=true scores such text as it is"
            )
    for side, lines in sides.items():
        if blank := [i for i, line in enumerate(lines, 1) if not line.strip()]:
            log.warning(f"{len(blank):,} {side} line(s) are empty, the first is line {blank[0]:,}")


def pick_languages(config: EvaluateConfig, model: EvaluatedModel | None) -> tuple[str, str]:
    """Source and target language. ValueError when the data have other languages than the model.

    The sides of a user's files may have any names, ``src`` and ``ref`` any ends; only where both
    languages are swapped are they taken for languages.
    """
    source, target = languages = config.languages if model is None else model.languages
    data = config.languages
    if config.own_files and model is not None:
        names = [f.name for f in cast("FileReader", config.reader).files(config.split)]
        data = [name.removesuffix(".gz").rpartition(".")[2] for name in names]
    swapped = data == languages[::-1] != languages
    is_language_pair = not isinstance(config.reader, FileReader) and source.isalpha()
    if swapped or (is_language_pair and data != languages):
        fix = "swap src and ref" if config.own_files else f"set data.src={source} data.tgt={target}"
        directions = f"{source} to {target}, the data are {data[0]} to {data[1]}"
        raise ValueError(f"the model translates {directions}" + f": {fix}" * swapped)
    return source, target if target.isalpha() else "de"  # the number of a column is no language


def machine(device: torch.device) -> str:
    """GPU, CPU and threads in words, but no host name."""
    cpu = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    threads = torch.get_num_threads()
    cpu += f", {threads} thread{'s' if threads > 1 else ''}"
    return f"{torch.cuda.get_device_name(device)}; {cpu}" if device.type == "cuda" else cpu


def new_report(
    config: EvaluateConfig,
    model: EvaluatedModel | None,
    test_set: tuple[list[str], list[str]],
    target: str,
) -> Report:
    """The report as far as it is known before the first search."""
    sources, references = test_set
    no_model = {"model": config.hyp, "model_sha256": None, "source_tokens": None}
    return {
        **reports.origin(),
        "machine": machine(pick_device(config.device)),
        **(no_model if model is None else model.description(sources)),
        "data": config.test_set,
        "sentences": len(sources),
        "source_sha256": reports.digest(sources),
        "reference_sha256": reports.digest(references),
        "target": target,
        "tokenized": config.tokenized,
        "config": config.resolved,
        "versions": {"mt": metrics.package_version("mt")}
        | {library.__name__: library.__version__ for library in (torch, sacrebleu, sacremoses)},
        "runs": [],
    }


def add_output(
    report: Report, output: SystemOutput, test_set: tuple[list[str], list[str]]
) -> list[Row]:
    """Score an output against the test set, add it to the report, and return its sentences."""
    scores, rows = reports.score_output(
        *test_set, output.hypotheses, report["target"], report["tokenized"]
    )
    for row, log_prob in zip(rows, output.log_probs or (), strict=False):
        row["log_prob"] = log_prob
    files = {"hypotheses": f"hypotheses.{output.name}.txt"}
    files["sentence_scores"] = f"sentences.{output.name}.jsonl"
    report["runs"].append(output.search | scores | files)
    return rows


def run(config: EvaluateConfig, run_dir: Path) -> None:
    """Evaluate and write the report. Raises ValueError or OSError that says what is wrong."""
    metrics.bootstrap_seed()  # a wrong one shows before the work
    replaced = reports.report_files(run_dir)
    without_comet = run_dir / "without-comet"
    also_replaced = reports.report_files(without_comet) if config.comet else set()
    inputs = [] if config.hyp is None else [Path(config.hyp)]
    if isinstance(config.reader, FileReader):
        inputs += config.reader.files(config.split)
    outputs = [run_dir / name for name in replaced]
    for path in [*outputs, *(without_comet / name for name in also_replaced)]:
        check_not_input(path, *inputs)
    for file in inputs:
        if file.resolve().parent == run_dir.resolve() and reports.is_report_name(file.name):
            raise ValueError(f"{file}: the report would replace it: name another hydra.run.dir")
    model = EvaluatedModel(config) if config.hyp is None else None
    sources, references = read_test_set(config)
    languages = pick_languages(config, model)
    warn_of_odd_text(config.tokenized, source=sources, reference=references)
    gpu = pick_device(config.device).type == "cuda"
    comet = None if config.comet is None else Comet(config.comet, gpu)
    report = new_report(config, model, (sources, references), languages[1])
    sentences: list[list[Row]] = []
    unfinished: list[Path] = []
    for output in model.translate(sources) if model else read_hypotheses(config, len(sources)):
        if model is not None:  # keep the translations even if a later step fails
            run_dir.mkdir(parents=True, exist_ok=True)
            unfinished.append(run_dir / f"unfinished.{output.name}.txt")
            atomic_write(unfinished[-1], reports.join_lines(output.hypotheses))
            warn_of_poor_output(output, sources)
        sentences.append(add_output(report, output, (sources, references)))
    failure: ValueError | None = None
    if comet is not None:
        try:
            reports.add_comet(comet, report, sentences, languages)
        except ValueError as error:  # the report is written without COMET
            failure = error
            if replaced:  # the old report may have it: keep that one
                run_dir, replaced = without_comet, also_replaced
    reports.save(run_dir, report, sentences, replaced)
    for path in unfinished:
        path.unlink()
    curves = {} if model is None else model.learning_curves()
    plots.draw_evaluation(run_dir / "pictures.png", report, sentences, curves)
    with console.ignore_broken_pipe():
        print(f"{reports.render(report)}\n\nreport  {run_dir}/report.md")
        print(f"compare python -m mt.evaluate {shlex.quote(f'compare=[{run_dir},FOLDER]')}")
    if failure is not None:
        raise ValueError(f"comet={config.comet}: {failure}; {run_dir}/report.md is without it")


@contextlib.contextmanager
def only_evaluation(run_dir: Path) -> Iterator[None]:
    """Raise BlockingIOError when another evaluation writes to the run directory."""
    lock = run_dir / ".lock"
    message = f"{run_dir}: another evaluation writes there now: name another hydra.run.dir"
    with exclusive_lock(lock, message):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@hydra.main(version_base="1.3", config_path=hydra_app.CONF, config_name="evaluate")
def main(cfg: DictConfig) -> None:
    logging.basicConfig(format="mt.evaluate: %(message)s", stream=sys.stderr)
    console.write_utf8()
    run_dir = hydra_app.run_folder()
    with (
        hydra_app.setting_up("mt.evaluate", run_dir, *hydra_app.USER_ERRORS),
        only_evaluation(run_dir),
        console.within_memory("set a smaller search.batch_size or search.beam_size"),
    ):
        if cfg.compare is None:
            run(read_config(cfg), run_dir)
        else:
            compare.run(as_list(cfg.compare), run_dir)


if __name__ == "__main__":
    hydra_app.start("mt.evaluate", main)
