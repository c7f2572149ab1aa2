"""CTranslate2: a folder for ``ctranslate2.Translator``, in float32, float16 or 8 bits.

Needs ctranslate2, the optional extra of that name. CTranslate2 has our layout of positions and
of stacked matrices, so the weights are copied as they are.
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
from mt.export import common
from mt.inference.batch_runner import pick_workers
from mt.inference.confidence import load_calibration
from mt.inference.constraints import Constraints
from mt.inference.inputs import Input
from mt.inference.options import MAX_EXTRA, SearchOptions, load_search_defaults
from mt.inference.sentence_search import Hypothesis
from mt.inference.translation import Translation
from mt.inference.translator import Translator
from mt.model import checkpoint
from mt.model.checkpoint import LoadedModel
from mt.model.device import pick_device
from mt.utils.checks import check_int
from mt.utils.hashes import sha256_of
from mt.utils.json_io import read_json

PRECISIONS = ("float32", "float16", "int8", "int8_bfloat16")
FILES = ("model.bin", "mt.json", "tokenizer.model")
ACTIVATIONS = {
    "relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH", "swish": "SWISH"
}  # fmt: skip
HASHED = ("model.bin", "tokenizer.model")  # mt.json has their SHA-256


def write(loaded: LoadedModel, folder: Path, precision: str) -> None:
    """Write the export to the empty ``folder``. ValueError if CTranslate2 cannot run the model."""
    from ctranslate2.specs import TransformerSpec, common_spec

    variants = ("norm", "activation", "tied_embeddings")
    model: Any = common.check_exportable(loaded, "CTranslate2", variants=variants)
    is_pre = model.config.get("norm") == "pre"
    activation = ACTIVATIONS[model.config.get("activation", "relu")]
    spec = TransformerSpec.from_config(
        model.config["N"], model.h, pre_norm=is_pre,
        activation=getattr(common_spec.Activation, activation),
    )  # fmt: skip
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings = math.sqrt(model.d_model)
        side.position_encodings.encodings = _array(common.position_encodings(loaded))
    (embeddings,) = spec.encoder.embeddings
    target = model.embedding if model.target_embedding is None else model.target_embedding
    embeddings.weight = _array(model.embedding.weight)
    spec.decoder.embeddings.weight = _array(target.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    if is_pre:
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.bias = common.output_bias(loaded).numpy()
    for layer_spec, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        attention, feed_forward = layer.add_norm
        _attention(layer_spec.self_attention, layer.self_attention, attention.norm)
        _feed_forward(layer_spec.ffn, layer.feed_forward, feed_forward.norm)
    for layer_spec, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        attention, cross, feed_forward = layer.add_norm
        _attention(layer_spec.self_attention, layer.self_attention, attention.norm)
        _attention(layer_spec.attention, layer.cross_attention, cross.norm)
        _feed_forward(layer_spec.ffn, layer.feed_forward, feed_forward.norm)
    pieces = loaded.tokenizer.all_pieces()
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = pieces[UNK : EOS + 1]
    config.decoder_start_token = pieces[BOS]
    config.add_source_eos = True
    spec.validate()
    spec.optimize(None if precision == "float32" else precision)
    spec.save(str(folder))
    (folder / "tokenizer.model").write_bytes(loaded.tokenizer.proto)
    about = {name: loaded.config.get(name) for name in ("languages", "max_length", "confidence")}
    about["search"] = loaded.config.get("search", {})
    about["sha256"] = {name: sha256_of(folder / name) for name in HASHED}
    (folder / "mt.json").write_text(json.dumps(about) + "\n", encoding="utf-8")


def _array(W: Tensor) -> Any:
    return W.detach().float().numpy().copy()  # a copy, because optimize() changes it


def _attention(spec: Any, layer: Any, norm: nn.LayerNorm) -> None:
    matrices = [*(getattr(layer, stacked) for stacked in layer.sizes), layer.W_O]
    for linear_spec, matrix in zip(spec.linear, matrices, strict=True):
        linear_spec.weight = _array(matrix.weight)
    _norm(spec.layer_norm, norm)


def _feed_forward(spec: Any, layer: Any, norm: nn.LayerNorm) -> None:
    for linear_spec, linear in ((spec.linear_0, layer.W_1), (spec.linear_1, layer.W_2)):
        linear_spec.weight, linear_spec.bias = _array(linear.weight), _array(linear.bias)
    _norm(spec.layer_norm, norm)


def _norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _refuse_terms(terms: Sequence[object]) -> None:
    if any(terms):
        raise ValueError("CTranslate2 keeps no terms: translate with the engine mt")


class Engine(common.OwnTokenizer, Translator):
    """CTranslate2 with the methods of our Translator, as far as it can do what they do.

    The search is CTranslate2's own: it may end a beam earlier or later, its length penalty differs
    (``common.length_exponent``), it gives no log-probability of single pieces, and a beam that
    reaches its limit may depend on the other sentences. ``precision`` is that of the computation:
    float32, bfloat16, int8 ...; ``default`` is that of the folder, or the nearest of the device.
    Raises FileNotFoundError or ValueError that says what is wrong with folder or option.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        device: str = "cpu",
        precision: str = "default",
        workers: int | None = None,
    ) -> None:
        import ctranslate2

        ctranslate2.set_log_level(logging.ERROR)  # else it reports every change of precision
        folder = Path(folder)
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder}: not written by mt.export --to ctranslate2, {name} is missing"
                )
        torch_device = pick_device(device)
        self.options = load_search_defaults(folder)
        self.calibration = load_calibration(folder)
        self.workers = pick_workers(workers, torch_device)
        with _naming(folder):
            config = read_json(folder / "mt.json")
            if not isinstance(config, dict):
                raise ValueError("mt.json: not a JSON object")
            check_int("mt.json: max_length", config.get("max_length"), 1, checkpoint.MOST_LENGTH)
            self.max_length = int(config["max_length"])
            self.configs = [config]
            checkpoint.check_hashes(folder, config.get("sha256"), HASHED)
            self.tokenizer = Tokenizer.load(folder / "tokenizer.model")
            self.engine = ctranslate2.Translator(
                str(folder), device=torch_device.type, device_index=torch_device.index or 0,
                compute_type=precision, inter_threads=self.workers,
                intra_threads=max(1, torch.get_num_threads() // self.workers),
            )  # fmt: skip
        self.name, self.exact, self.models = str(folder), True, []
        self.computes_in = self.engine.compute_type
        self.ids = {piece: i for i, piece in enumerate(self.tokenizer.all_pieces())}

    def plan(self, *args: Any, **kwargs: Any) -> list[list[Input]]:
        plan = super().plan(*args, **kwargs)
        _refuse_terms([source.terms for line_inputs in plan for source in line_inputs])
        return plan

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        results = self.search(list(sources), SearchOptions(beam_size=1), [[] for _ in sources])
        return [hypotheses[0].ids for hypotheses in results]

    def search(
        self,
        sources: list[list[int]],
        options: SearchOptions,
        prefixes: list[list[int]],
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Hypothesis]]:
        _refuse_terms(constraints or ())
        if not options.is_beam_search or options.attention or options.mbr:
            raise ValueError(
                "CTranslate2 gives neither samples, alternatives nor attention, nor what MBR needs"
            )
        limits = [max(len(ids) + MAX_EXTRA, options.min_length) for ids in sources]
        if options.max_length is not None:
            limits = [options.max_length] * len(sources)
        limits = [max(limit, len(ids)) for limit, ids in zip(limits, prefixes, strict=True)]
        with _naming(self.name):
            results = self.engine.translate_batch(
                [self.tokenizer.pieces(ids) for ids in sources],
                target_prefix=[self.tokenizer.pieces(ids) or None for ids in prefixes],
                beam_size=options.width, num_hypotheses=options.n_best, return_scores=True,
                length_penalty=common.length_exponent(options.alpha), max_input_length=0,
                min_decoding_length=options.min_length, max_decoding_length=max(1, *limits),
                no_repeat_ngram_size=options.no_repeat_ngram,
                repetition_penalty=options.repetition_penalty,
            )  # fmt: skip
        return [
            [
                Hypothesis([self.ids[piece] for piece in pieces][:limit], score, math.nan)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result, limit in zip(results, limits, strict=True)
        ]

    def score(self, *_: Any, **__: Any) -> list[Translation]:
        raise ValueError("CTranslate2 does not score given translations here: use our own engine")


@contextmanager
def _naming(folder: Path | str) -> Iterator[None]:
    """Turn the errors of CTranslate2 and of a damaged folder into a ValueError that names it."""
    try:
        yield
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split()).removeprefix(f"{folder}/")
        raise ValueError(f"{folder}: {reason}") from None
