"""python -m mt.evaluate: BLEU evaluation runs as conf/evaluate.yaml says (Hydra).

Translates a test set with each beam size asked for, prints every score with its signature, and
writes hypotheses and report.json to the run directory.
"""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import hydra
import sacrebleu
import torch
from omegaconf import DictConfig, OmegaConf
from tqdm import tqdm

from mt import checkpoint, cli, corpus, metrics
from mt.search import SearchOptions
from mt.sources import SPLITS, make_source
from mt.translator import Translator, default_workers, pick_device


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


def evaluate(
    translator: Translator,
    sources: list[str],
    references: list[str],
    options: SearchOptions,
    batch_size: int,
    german: bool,
) -> tuple[list[str], dict[str, Any]]:
    """Hypotheses, and their scores and speed; tokens are the model's, eos counted."""
    start = time.perf_counter()
    with tqdm(total=len(sources), unit=" sentences", disable=None) as bar:
        results = translator.translate(
            sources, options, batch_size=batch_size, on_progress=bar.update
        )
    seconds = time.perf_counter() - start
    hypotheses = [result.text for result in results]
    tokens = sum(result.tokens for result in results)
    return hypotheses, {
        "beam_size": options.beam_size,
        "alpha": options.alpha,
        "scores": [score._asdict() for score in metrics.all_scores(hypotheses, references, german)],
        "output_tokens": tokens,
        "seconds": round(seconds, 3),
        "tokens_per_second": round(tokens / seconds, 1),
    }


def render(report: dict[str, Any]) -> str:
    """The report for a terminal: a row a score, a column a search, then the signatures."""
    runs = report["runs"]
    names = ["greedy" if r["beam_size"] == 1 else f"beam {r['beam_size']}" for r in runs]
    lines = [
        f"model   {report['model']} (sha256 {report['model_sha256'][:12]})",
        f"data    {report['data']}: {report['sentences']:,} sentences, "
        f"{report['source_tokens']:,} source tokens",
        "",
        " " * 32 + "".join(f"{name:>12}" for name in names),
    ]
    for i, score in enumerate(runs[0]["scores"]):
        values = "".join(f"{run['scores'][i]['value']:12.2f}" for run in runs)
        lines.append(f"{score['name']:<32}{values}")
    for key, label in (("output_tokens", "output tokens"), ("tokens_per_second", "tokens/s")):
        lines.append(f"{label:<32}" + "".join(f"{run[key]:12,.0f}" for run in runs))
    lines += ["", "signatures"]
    lines += [f"  {score['name']}: {score['signature']}" for score in runs[0]["scores"]]
    return "\n".join(lines)


def _check_languages(cfg: DictConfig, languages: list[str]) -> None:
    """ValueError when data of the other direction are about to be scored."""
    given = [str(cfg.data.src), str(cfg.data.tgt)]
    if cfg.src is None and given == languages[::-1] != languages:
        raise ValueError(
            f"the model translates {' to '.join(languages)}, the data are {' to '.join(given)}: "
            f"set data.src={languages[0]} data.tgt={languages[1]}"
        )


def run(cfg: DictConfig, run_dir: Path) -> None:
    path = Path(str(cfg.model_path)) if cfg.model_path else checkpoint.latest()
    sizes = cfg.search.beam_size
    sizes = [sizes] if not OmegaConf.is_list(sizes) else list(sizes)
    if not sizes or len(set(sizes)) < len(sizes):
        raise ValueError(f"search.beam_size={sizes}: name at least one, each once")
    options = [SearchOptions(size, cfg.search.alpha) for size in sizes]
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
    german = languages[1] == "de" or not languages[1].isalpha()  # a column's number says nothing
    report: dict[str, Any] = {
        "model": str(path),
        "model_sha256": checkpoint.digest(path),
        "model_config": loaded.config,
        "data": name,
        "sentences": len(sources),
        "source_tokens": sum(len(ids) + 1 for ids in loaded.tokenizer.encode(sources)),
        "config": OmegaConf.to_container(cfg, resolve=True),
        "versions": {"torch": torch.__version__, "sacrebleu": sacrebleu.__version__},
        "runs": [],
    }
    run_dir.mkdir(parents=True, exist_ok=True)
    for option in options:
        hypotheses, result = evaluate(
            translator, sources, references, option, cfg.search.batch_size, german
        )
        file = run_dir / f"hypotheses.beam{option.beam_size}.txt"
        file.write_text("".join(f"{line}\n" for line in hypotheses), encoding="utf-8")
        report["runs"].append(result | {"hypotheses": file.name})
    print(render(report))
    partial = run_dir / ".report.json"
    partial.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")
    partial.replace(run_dir / "report.json")
    print(f"\nreport  {run_dir}/report.json")


@hydra.main(version_base="1.3", config_path=cli.CONF, config_name="evaluate")
def main(cfg: DictConfig) -> None:
    logging.basicConfig(format="mt.evaluate: %(message)s", stream=sys.stderr)
    run_dir = cli.run_folder()
    with cli.setting_up("mt.evaluate", run_dir, *cli.USER_ERRORS):
        run(cfg, run_dir)


if __name__ == "__main__":
    cli.start("mt.evaluate", main)
