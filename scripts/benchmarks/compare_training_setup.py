"""What `compare_training.py` gives both toolkits: the data in pieces, and the same settings."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmark_models import Size, joeynmt_shape
from reporting import setting

from mt.data import tokenizer as tokenizers
from mt.data.prepared_corpus import PreparedCorpus
from mt.data.preprocessing import PairFilter, prepare, texts
from mt.data.readers import FileReader
from mt.data.special_ids import SPECIAL_IDS
from mt.data.tokenizer import Tokenizer
from mt.utils.atomic import atomic_write

MODEL: dict[str, Any] = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4, "P_drop": 0.3}
TRAINING = {"eps_ls": 0.1, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
SEARCH: dict[str, Any] = {"beam_size": 5, "alpha": 1.0}
LONGEST = 100  # pieces of a translation by Joey NMT, which needs a number; mt has source + 50
WORD_BEGIN = "\u2581"  # with which SentencePiece marks a blank
JOEYNMT = "joeynmt"
TOOLKITS = ("mt", JOEYNMT)
SPLITS = {"validation": "dev", "test": "test"}  # mt's name and Joey NMT's


class Plan(NamedTuple):
    """The settings that both trainings share."""

    work: Path
    source: FileReader
    vocabulary: int  # pieces
    max_tokens: int  # on each side of a batch of mt.train
    updates: int
    warmup: int  # updates
    checkpoint_every: int  # updates
    validate_every: int  # updates
    average: tuple[int, ...]  # numbers of last checkpoints to try on the validation set
    seed: int
    threads: int

    def numbers(self) -> dict[str, Any]:
        """All that training depends on, except the data."""
        numbers = {name: value for name, value in self._asdict().items() if isinstance(value, int)}
        return {**numbers, "checkpoints": max(self.average)}


def prepare_both(plan: Plan) -> PreparedCorpus:
    """Make the BPE model, mt.train's pairs, and files with their pieces for Joey NMT."""
    path = plan.work / "tokenizer.model"
    if not path.exists():
        pairs = plan.source.pairs("train")
        tokenizers.save(tokenizers.train((s for p in pairs for s in p), plan.vocabulary), path)
    tokenizer = Tokenizer.load(path)
    pair_filter = PairFilter(duplicates=True)  # as in conf/data/files.yaml
    kept = prepare(plan.source, "train", tokenizer, pair_filter, plan.work / "cache")
    sides = kept.fetch(list(range(len(kept))))
    ids = {"train": [[row.tolist() for row in side] for side in sides]}
    for split, name in SPLITS.items():
        ids[name] = [tokenizer.encode(lines) for lines in texts(plan.source, split)]
    folder = plan.work / "pieces"
    folder.mkdir(exist_ok=True)
    for name, both_sides in ids.items():
        for suffix, rows in zip((plan.source.src, plan.source.tgt), both_sides, strict=True):
            lines = (" ".join(tokenizer.pieces(row)) for row in rows)
            write_lines(folder / f"{name}.{suffix}", lines)
    first = len(SPECIAL_IDS)  # Joey NMT has its own special pieces
    words = tokenizer.pieces(list(range(first, tokenizer.vocab_size)))
    write_lines(folder / "vocabulary.txt", words)
    return kept


def join(pieces: str) -> str:
    """Joey NMT's output -> text. It writes <unk> for an empty translation."""
    if pieces == "<unk>":
        return ""
    return pieces.replace(" ", "").replace(WORD_BEGIN, " ").strip()


def hypotheses(plan: Plan, name: str, split: str, count: int) -> Path:
    """The path of a toolkit's translations with the mean of its last ``count`` checkpoints."""
    return plan.work / f"{name}.{count}.{split}"


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    atomic_write(path, "".join(f"{line}\n" for line in lines))


def joeynmt_batches(longest: Sequence[int], batch_size: int) -> int:
    """The number of batches that Joey NMT makes of pairs in this order.

    longest: the tokens of each pair's longer side.
    """
    batches = pairs = most = 0
    for length in longest:
        pairs, most = pairs + 1, max(most, length)
        if pairs * most >= batch_size:
            batches, pairs, most = batches + 1, 0, 0
    return batches + (pairs > 0)


def fitting_batch_size(longest: np.ndarray, batches: int, epochs: int = 5) -> int:
    """The ``batch_size`` with which Joey NMT's epochs have a mean of ``batches`` batches.

    longest: [pairs], the tokens of each pair's longer side, with eos.
    """
    orders = [np.random.default_rng(i).permutation(longest).tolist() for i in range(epochs)]

    def mean(size: int) -> float:
        return statistics.mean(joeynmt_batches(order, size) for order in orders)

    low, high = 1, int(longest.max()) * len(longest)  # one pair in each batch; all in one batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) >= batches else (low, middle)
    return min((low, high), key=lambda size: abs(mean(size) - batches))


def mt_arguments(plan: Plan) -> list[str]:
    """The arguments of `python -m mt.train`."""
    return [
        "data=files",
        setting("data.train", plan.source.train),
        setting("data.validation", plan.source.validation),
        f"data.src={plan.source.src}",
        f"data.tgt={plan.source.tgt}",
        f"data.tokens_per_step={plan.max_tokens}",
        f"data.max_tokens={plan.max_tokens}",
        setting("data.cache_dir", plan.work / "cache"),
        setting("tokenizer.path", plan.work / "tokenizer.model"),
        "model=tiny",
        *(f"model.{name}={value}" for name, value in MODEL.items()),
        *(f"training.{name}={value}" for name, value in TRAINING.items()),
        f"training.warmup_steps={plan.warmup}",
        f"seed={plan.seed}",
        f"validate_every={plan.validate_every}",
        f"checkpoint_every={plan.checkpoint_every}",
        f"average={max(plan.average)}",  # keeps so many checkpoints
        "search.beam_size=1",
        f"trainer.max_steps={plan.updates}",
        "trainer.accelerator=cpu",
        "trainer.devices=1",
        "trainer.precision=32-true",
        setting("hydra.run.dir", plan.work / "mt"),
    ]


def joeynmt_config(plan: Plan, batch_size: int) -> dict[str, Any]:
    """Joey NMT's configuration of the same training."""
    text = plan.work / "pieces"
    language = {"level": "word", "lowercase": False, "voc_file": str(text / "vocabulary.txt")}
    size = Size(MODEL["d_model"], MODEL["d_ff"], MODEL["h"], MODEL["N"], plan.vocabulary)
    return {
        "name": "compare_training",
        "joeynmt_version": "2.3.0",
        "model_dir": str(plan.work / JOEYNMT),
        "use_cuda": False,
        "random_seed": plan.seed,
        "data": {
            "train": str(text / "train"),
            **{name: str(text / name) for name in SPLITS.values()},
            "dataset_type": "plain",
            "src": {"lang": plan.source.src, **language},
            "trg": {"lang": plan.source.tgt, **language},
        },
        "model": {
            **joeynmt_shape(size, MODEL["P_drop"]),
            "embed_initializer": "normal",
            "embed_init_weight": MODEL["d_model"] ** -0.5,  # the standard deviation
            "bias_initializer": "zeros",
        },
        "training": {
            "normalization": "tokens",
            "loss": "crossentropy",
            "label_smoothing": TRAINING["eps_ls"],
            "optimizer": "adam",
            "adam_betas": [TRAINING["beta1"], TRAINING["beta2"]],
            "scheduling": "noam",
            "learning_rate_factor": 1,
            "learning_rate_warmup": plan.warmup,
            "learning_rate": MODEL["d_model"] ** -0.5 * plan.warmup**-1.5,  # of the first update
            "learning_rate_min": 0.0,  # a lower learning rate would end training
            "batch_size": batch_size,
            "batch_type": "token",
            "epochs": plan.updates,  # more than needed: "updates" ends the training
            "updates": plan.updates,
            "validation_freq": plan.checkpoint_every,
            "logging_freq": plan.checkpoint_every,
            "keep_best_ckpts": -1,  # all
            "early_stopping_metric": "ppl",
        },
        "testing": {
            "batch_size": 64,
            "batch_type": "sentence",
            "beam_size": SEARCH["beam_size"],
            "beam_alpha": SEARCH["alpha"],
            "max_output_length": LONGEST,
            "generate_unk": False,  # mt does not either
        },
        "comparison": {"validate_every": plan.validate_every, "eps": TRAINING["eps"]},
    }
