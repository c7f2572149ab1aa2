"""What `compare_training.py` gives both programs: the data in pieces, and the same settings."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarking import setting

from mt.data import tokenizer as tokenizers
from mt.data.preprocessing import PairFilter, PreparedCorpus, prepare, texts
from mt.data.readers import FileReader
from mt.data.tokenizer import Tokenizer

MODEL: dict[str, Any] = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4, "P_drop": 0.3}
TRAINING = {"eps_ls": 0.1, "beta1": 0.9, "beta2": 0.98, "eps": 1e-9}
SEARCH: dict[str, Any] = {"beam_size": 5, "alpha": 1.0}
LONGEST = 100  # pieces of a translation by Joey NMT, which wants a number; mt has source + 50
WORD_BEGIN = "\u2581"  # SentencePiece's mark of a blank
PEER = "joeynmt"
NAMES = ("mt", PEER)
SPLITS = {"validation": "dev", "test": "test"}  # our name and Joey NMT's


class Plan(NamedTuple):
    """What both trainings share."""

    work: Path
    source: FileReader
    vocabulary: int  # pieces
    max_tokens: int  # of a side in a batch of mt.train's
    updates: int
    warmup: int  # updates
    checkpoint_every: int  # updates
    validate_every: int  # updates
    average: tuple[int, ...]  # last checkpoints: the numbers tried on the validation set
    seed: int
    threads: int

    def numbers(self) -> dict[str, Any]:
        """All that training depends on but the data."""
        return {
            **{name: value for name, value in self._asdict().items() if isinstance(value, int)},
            "checkpoints": max(self.average),
        }


# -------------------------------------------------------------------------------- the same data


def prepare_both(plan: Plan) -> PreparedCorpus:
    """The BPE model and the pairs that mt.train will use; for the peer, their pieces in files."""
    path = plan.work / "tokenizer.model"
    if not path.exists():
        pairs = plan.source.pairs("train")
        tokenizers.save(tokenizers.train((s for p in pairs for s in p), plan.vocabulary), path)
    tokenizer = Tokenizer.load(path)
    cleaning = PairFilter(duplicates=True)  # as conf/data/files.yaml
    kept = prepare(plan.source, "train", tokenizer, cleaning, plan.work / "cache")
    text = plan.work / "pieces"
    text.mkdir(exist_ok=True)
    sides = kept.fetch(list(range(len(kept))))
    for name, rows in zip((plan.source.src, plan.source.tgt), sides, strict=True):
        write_lines(text / f"train.{name}", (spell(tokenizer, row.tolist()) for row in rows))
    for split, theirs in SPLITS.items():
        both = texts(plan.source, split)
        for name, lines in zip((plan.source.src, plan.source.tgt), both, strict=True):
            ids = tokenizer.encode(lines)
            write_lines(text / f"{theirs}.{name}", (spell(tokenizer, row) for row in ids))
    special = len(tokenizers.SPECIAL)  # of them Joey NMT has its own
    words = tokenizer.pieces(list(range(special, tokenizer.vocab_size)))
    write_lines(text / "vocabulary.txt", words)
    return kept


def spell(tokenizer: Tokenizer, ids: list[int]) -> str:
    """Ids -> their pieces with blanks between, as a peer reads them."""
    return " ".join(tokenizer.pieces(ids))


def join(pieces: str) -> str:
    """A peer's output -> text. Joey NMT writes <unk> for an empty translation."""
    if pieces == "<unk>":
        return ""
    return pieces.replace(" ", "").replace(WORD_BEGIN, " ").strip()


def hypotheses(plan: Plan, name: str, split: str, count: int) -> Path:
    """A program's translations as text, by the mean of its last ``count`` checkpoints."""
    return plan.work / f"{name}.{count}.{split}"


def read_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").removesuffix("\n").split("\n")


def write_lines(path: Path, lines: Iterable[str]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    partial.replace(path)


def peer_batches(longest: Sequence[int], batch_size: int) -> int:
    """How many batches Joey NMT makes of pairs in this order: it closes one when it is full."""
    batches = pairs = most = 0
    for length in longest:
        pairs, most = pairs + 1, max(most, length)
        if pairs * most >= batch_size:
            batches, pairs, most = batches + 1, 0, 0
    return batches + (pairs > 0)


def fitting_batch_size(longest: np.ndarray, batches: int, epochs: int = 5) -> int:
    """Joey NMT's ``batch_size`` with which an epoch has ``batches`` batches, in the mean.

    longest: [pairs] tokens of each pair's longer side, eos counted.
    """
    orders = [np.random.default_rng(i).permutation(longest).tolist() for i in range(epochs)]

    def mean(size: int) -> float:
        return statistics.mean(peer_batches(order, size) for order in orders)

    low, high = 1, int(longest.max()) * len(longest)  # a pair a batch, and all in one
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if mean(middle) >= batches else (low, middle)
    return min((low, high), key=lambda size: abs(mean(size) - batches))


# ---------------------------------------------------------------------------- the same settings


def our_command(plan: Plan) -> list[str]:
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
        f"average={max(plan.average)}",  # so many are kept
        "search.beam_size=1",
        f"trainer.max_steps={plan.updates}",
        "trainer.accelerator=cpu",
        "trainer.devices=1",
        "trainer.precision=32-true",
        setting("hydra.run.dir", plan.work / "mt"),
    ]


def peer_config(plan: Plan, batch_size: int) -> dict[str, Any]:
    """Joey NMT's configuration of the same training."""
    text = plan.work / "pieces"
    language = {"level": "word", "lowercase": False, "voc_file": str(text / "vocabulary.txt")}
    side = {
        "type": "transformer",
        "num_layers": MODEL["N"],
        "num_heads": MODEL["h"],
        "hidden_size": MODEL["d_model"],
        "ff_size": MODEL["d_ff"],
        "embeddings": {
            "embedding_dim": MODEL["d_model"],
            "scale": True,
            "dropout": MODEL["P_drop"],
        },
        "dropout": MODEL["P_drop"],
        "layer_norm": "post",
        "activation": "relu",
    }
    return {
        "name": "compare_training",
        "joeynmt_version": "2.3.0",
        "model_dir": str(plan.work / PEER),
        "use_cuda": False,
        "random_seed": plan.seed,
        "data": {
            "train": str(text / "train"),
            **{theirs: str(text / theirs) for theirs in SPLITS.values()},
            "dataset_type": "plain",
            "src": {"lang": plan.source.src, **language},
            "trg": {"lang": plan.source.tgt, **language},
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "normal",
            "embed_init_weight": MODEL["d_model"] ** -0.5,  # its deviation
            "bias_initializer": "zeros",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": side,
            "decoder": side,
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
            "learning_rate_min": 0.0,  # it would end training
            "batch_size": batch_size,
            "batch_type": "token",
            "epochs": plan.updates,  # updates end it
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
            "generate_unk": False,  # as mt
        },
        "comparison": {
            "validate_every": plan.validate_every,
            "eps": TRAINING["eps"],
        },
    }
