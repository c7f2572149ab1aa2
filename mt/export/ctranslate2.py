"""CTranslate2: a folder for ``ctranslate2.Translator``, in float32, float16 or 8 bits.

Needs ctranslate2, the optional extra of that name. Our own layout of positions and of stacked
matrices is CTranslate2's too: nothing changes place.
"""

import json
import logging
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mt.data.special_ids import BOS, EOS, UNK
from mt.data.tokenizer import Tokenizer
from mt.export.common import OurTokens, check, length_penalty, never, pieces, positions
from mt.inference.beam_search import Hypothesis
from mt.inference.options import MAX_EXTRA, SearchOptions, load_search_defaults
from mt.inference.translation import Translation
from mt.inference.translator import Translator, check_workers, default_workers, pick_device
from mt.model.checkpoint import LoadedModel

PRECISIONS = ("float32", "float16", "int8", "int8_bfloat16")
FILES = ("model.bin", "mt.json", "tokenizer.model")


def write(loaded: LoadedModel, folder: Path, precision: str) -> None:
    """Into ``folder``, which is there and empty."""
    from ctranslate2.specs import TransformerSpec

    check(loaded, "CTranslate2")
    model: Any = loaded.model
    spec = TransformerSpec.from_config(model.config["N"], model.h, pre_norm=False)
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = math.sqrt(model.d_model)
        side.position_encodings.encodings = _array(positions(loaded))
    (embeddings,) = spec.encoder.embeddings
    for each in (embeddings, spec.decoder.embeddings, spec.decoder.projection):
        each.weight = _array(model.embedding.weight)
    spec.decoder.projection.bias = never(loaded).numpy()
    for to, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        attention, feed_forward = layer.add_norm
        _attention(to.self_attention, layer.self_attention, attention.norm)
        _feed_forward(to.ffn, layer.feed_forward, feed_forward.norm)
    for to, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        attention, cross, feed_forward = layer.add_norm
        _attention(to.self_attention, layer.self_attention, attention.norm)
        _attention(to.attention, layer.cross_attention, cross.norm)
        _feed_forward(to.ffn, layer.feed_forward, feed_forward.norm)
    words = pieces(loaded.tokenizer)
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = words[UNK : EOS + 1]
    config.decoder_start_token = words[BOS]
    config.add_source_eos = True
    spec.validate()
    spec.optimize(None if precision == "float32" else precision)
    spec.save(str(folder))
    (folder / "tokenizer.model").write_bytes(loaded.tokenizer.proto)
    about = {name: loaded.config.get(name) for name in ("languages", "max_length")}
    about["search"] = loaded.config.get("search", {})
    (folder / "mt.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


def _array(W: Tensor) -> Any:
    return W.detach().float().numpy().copy()  # which optimize() changes


def _attention(to: Any, layer: Any, norm: nn.LayerNorm) -> None:
    matrices = [*(getattr(layer, stacked) for stacked in layer.sizes), layer.W_O]
    for linear, each in zip(to.linear, matrices, strict=True):
        linear.weight = _array(each.weight)
    _norm(to.layer_norm, norm)


def _feed_forward(to: Any, layer: Any, norm: nn.LayerNorm) -> None:
    for linear, each in ((to.linear_0, layer.W_1), (to.linear_1, layer.W_2)):
        linear.weight, linear.bias = _array(each.weight), _array(each.bias)
    _norm(to.layer_norm, norm)


def _norm(to: Any, norm: nn.LayerNorm) -> None:
    to.gamma, to.beta = _array(norm.weight), _array(norm.bias)


class Engine(OurTokens, Translator):
    """CTranslate2 behind the methods of our Translator, as far as it has their like.

    The search is CTranslate2's own: it may end a beam elsewhere, its length penalty is
    another (``length_penalty``), it gives no log-probability of single pieces, and a beam that
    runs to its limit may depend on its neighbours. ``precision`` is what it computes in: float32,
    bfloat16, int8 ...; ``default`` is what the folder is stored in, or the nearest that the device
    has. Raises FileNotFoundError or ValueError that says what is wrong with folder or option.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        device: str = "cpu",
        precision: str = "default",
        workers: int | None = None,
    ) -> None:
        import ctranslate2

        ctranslate2.set_log_level(logging.ERROR)  # else it tells of every change of precision
        folder = Path(folder)
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder}: not written by mt.export --to ctranslate2, {name} is missing"
                )
        where = pick_device(device)
        self.options = load_search_defaults(folder)
        self.workers = check_workers(default_workers(where) if workers is None else workers)
        with _naming(folder):
            config = json.loads((folder / "mt.json").read_text("utf-8"))
            self.max_length = int(config["max_length"])
            self.tokenizer = Tokenizer.load(folder / "tokenizer.model")
            self.engine = ctranslate2.Translator(
                str(folder),
                device=where.type,
                device_index=where.index or 0,
                compute_type=precision,
                inter_threads=self.workers,
                intra_threads=max(1, torch.get_num_threads() // self.workers),
            )
        self.name, self.exact, self.decoders = str(folder), True, []
        self.computes_in = self.engine.compute_type
        self.ids = {piece: i for i, piece in enumerate(pieces(self.tokenizer))}

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        found = self.search(list(sources), SearchOptions(beam_size=1), [[] for _ in sources])
        return [hypotheses[0].ids for hypotheses in found]

    def search(
        self, sources: list[list[int]], options: SearchOptions, begin: list[list[int]]
    ) -> list[list[Hypothesis]]:
        if options.samples or options.attention or options.mbr:
            raise ValueError("CTranslate2 gives neither samples nor attention, nor what MBR needs")
        if options.max_length is None:
            most = [max(len(ids) + MAX_EXTRA, options.min_length) for ids in sources]
        else:
            most = [options.max_length] * len(sources)
        most = [max(limit, len(first)) for limit, first in zip(most, begin, strict=True)]
        with _naming(self.name):
            found = self.engine.translate_batch(
                [self.tokenizer.pieces(ids) for ids in sources],
                target_prefix=[self.tokenizer.pieces(ids) or None for ids in begin],
                beam_size=options.width,
                num_hypotheses=options.n_best,
                length_penalty=length_penalty(options.alpha),
                min_decoding_length=options.min_length,
                max_decoding_length=max(1, *most),
                no_repeat_ngram_size=options.no_repeat_ngram,
                repetition_penalty=options.repetition_penalty,
                max_input_length=0,
                return_scores=True,
            )
        return [
            [
                Hypothesis([self.ids[word] for word in words][:limit], score, math.nan)
                for words, score in zip(each.hypotheses, each.scores, strict=True)
            ]
            for each, limit in zip(found, most, strict=True)
        ]

    def score(self, *_: Any, **__: Any) -> list[Translation]:
        raise ValueError("CTranslate2 does not score given translations here: use our own engine")


@contextmanager
def _naming(folder: Path | str) -> Iterator[None]:
    """What CTranslate2 and a damaged folder raise, as a ValueError that names the folder."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: {' '.join(str(error).split())}") from None
