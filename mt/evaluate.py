"""python -m mt.evaluate: evaluation runs as conf/evaluate.yaml says (Hydra).

Translates a test set with each beam size asked for, prints every score with its signature, and
writes to the run directory hypotheses, scores sentence by sentence, report.json, report.md and
pictures.png. ``compare=[A,B]`` sets two such reports side by side instead.
"""

import contextlib
import logging
import platform
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import sacrebleu
import sacremoses
import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from mt import checkpoint, cli, compare, corpus, metrics, pictures
from mt import report as reports
from mt.search import SearchOptions
from mt.sources import SPLITS, make_source
from mt.translation import Translation
from mt.translator import Translator, default_workers, pick_device

log = logging.getLogger("mt.evaluate")


def read_test_set(cfg: DictConfig) -> tuple[list[str], list[str], str]:
    """Sources, references and a name for them. ValueError or OSError says what is wrong."""
    if (cfg.src is None) != (cfg.ref is None):
        raise ValueError("src and ref go together: a file of sources and one of references")
    if cfg.src is not None:
        source = make_source({"kind": "files", "test": [cfg.src, cfg.ref]})
        return *corpus.texts(source, "test", cfg.limit), f"{cfg.src} / {cfg.ref}"
    if cfg.split not in SPLITS:
        raise ValueError(f"split={cfg.split}: must be one of {', '.join(SPLITS)}")
    source = make_source(cfg.data)
    given = cfg.data.get(cfg.split) or cfg.data.get("path") or cfg.data.kind
    name = f"{given} ({cfg.split})"
    return *corpus.texts(source, cfg.split, cfg.limit), name


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


def run(cfg: DictConfig, run_dir: Path) -> None:
    path = checkpoint.find(None if cfg.model_path is None else str(cfg.model_path))
    sizes = cfg.search.beam_size
    sizes = [sizes] if not OmegaConf.is_list(sizes) else list(sizes)
    if not sizes or len(set(sizes)) < len(sizes):
        raise ValueError(f"search.beam_size={sizes}: name at least one, each once")
    alpha = checkpoint.own_options(path).alpha if cfg.search.alpha is None else cfg.search.alpha
    options = [SearchOptions(size, alpha) for size in sizes]
    if not isinstance(cfg.tokenized, bool):
        raise ValueError(f"tokenized={cfg.tokenized!r}: must be true or false")
    device = pick_device(str(cfg.device))
    loaded = checkpoint.load(path, device)
    translator = Translator(
        loaded.model,
        loaded.tokenizer,
        loaded.config["max_length"],
        precision=cfg.precision,
        workers=default_workers(device) if cfg.workers is None else cfg.workers,
    )
    sources, references, name = read_test_set(cfg)
    languages = loaded.config.get("languages") or ["en", "de"]
    _check_languages(cfg, languages)
    target = languages[1] if languages[1].isalpha() else "de"  # a column's number says nothing
    if metrics.look_tokenized(references) not in (None, cfg.tokenized):
        log.warning(
            "the references do not look tokenised: tokenized=true is for text that is"
            if cfg.tokenized
            else "the references look tokenised: tokenized=true scores such text as it is"
        )
    for side, lines in (("source", sources), ("reference", references)):
        if blank := [i for i, line in enumerate(lines, 1) if not line.strip()]:
            log.warning(f"{len(blank):,} {side} line(s) are empty, the first is line {blank[0]:,}")
    comet = metrics.Comet(str(cfg.comet), device.type == "cuda") if cfg.comet else None
    report: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "command": shlex.join(["python", "-m", "mt.evaluate", *sys.argv[1:]]),
        "machine": machine(device),
        "model": "mt/everyday" if path == checkpoint.SHIPPED else str(path),
        "model_sha256": checkpoint.digest(path),
        "model_config": loaded.config,
        "data": name,
        "sentences": len(sources),
        "source_tokens": sum(len(ids) + 1 for ids in loaded.tokenizer.encode(sources)),
        "source_sha256": reports.digest(sources),
        "reference_sha256": reports.digest(references),
        "target": target,
        "tokenized": cfg.tokenized,
        "config": OmegaConf.to_container(cfg, resolve=True),
        "versions": {
            "torch": torch.__version__,
            "sacrebleu": sacrebleu.__version__,
            "sacremoses": sacremoses.__version__,
        },
        "runs": [],
    }
    run_dir.mkdir(parents=True, exist_ok=True)
    for old in ("report.json", "hypotheses.beam*.txt", "sentences.beam*.jsonl"):
        for file in run_dir.glob(old):  # of an evaluation before, not of this one
            file.unlink()
    sentences = []
    for option in options:
        results, speed = translate(translator, sources, option, cfg.search.batch_size)
        hypotheses = [result.text for result in results]
        scores, rows = reports.score(
            sources, references, hypotheses, (languages[0], target), cfg.tokenized, comet
        )
        for row, result in zip(rows, results, strict=True):
            row["log_prob"] = round(result.log_prob, 4)
        names = {
            "hypotheses": f"hypotheses.beam{option.beam_size}.txt",
            "sentence_scores": f"sentences.beam{option.beam_size}.jsonl",
        }
        reports.write(run_dir / names["hypotheses"], "".join(f"{line}\n" for line in hypotheses))
        reports.write_rows(run_dir / names["sentence_scores"], rows)
        search = {"beam_size": option.beam_size, "alpha": option.alpha}
        report["runs"].append(search | scores | speed | names)
        sentences.append(rows)
    reports.write(run_dir / "report.md", reports.markdown(report, sentences[-1]))
    reports.write_json(run_dir / "report.json", report)
    pictures.draw_evaluation(
        run_dir / "pictures.png", report, sentences, pictures.learning_curves(path)
    )
    print(f"{reports.render(report)}\n\nreport  {run_dir}/report.md")


@hydra.main(version_base="1.3", config_path=cli.CONF, config_name="evaluate")
def main(cfg: DictConfig) -> None:
    logging.basicConfig(format="mt.evaluate: %(message)s", stream=sys.stderr)
    run_dir = cli.run_folder()
    with cli.setting_up("mt.evaluate", run_dir, *cli.USER_ERRORS):
        if cfg.compare is None:
            run(cfg, run_dir)
        else:
            given = cfg.compare
            compare.run(list(given) if OmegaConf.is_list(given) else [given], run_dir)


if __name__ == "__main__":
    cli.start("mt.evaluate", main)
