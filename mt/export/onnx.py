"""ONNX: ``encoder.onnx`` and ``decoder.onnx``, which computes one step with its cache.

Needs onnx, onnxscript and onnxruntime, the optional extra ``onnx``.

Shapes: N layers, R rows (a hypothesis each), S source length, T tokens so far, V vocabulary, h
heads, width = d_model / h, that of a head. ``cross`` and ``past`` hold keys before values.

- encoder: ``source`` [R, S], which ends in eos and is padded after it
  -> ``cross`` [N, 2, R, h, S, width].
- decoder: ``token`` [R], ``source``, ``cross``, ``past`` [N, 2, R, h, T, width] with T = 0 at first
  -> ``logits`` [R, V], ``present`` [N, 2, R, h, T + 1, width]. The first token is bos; a
  translation ends at eos. ``config.json`` has their ids.
"""

import json
import logging
import math
import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mt.data.batch_sampler import pad
from mt.data.special_ids import BOS, EOS, PAD, UNK
from mt.data.tokenizer import Tokenizer
from mt.export.common import OwnTokenizer, check_exportable, output_bias, position_encodings
from mt.inference.beam_search import search
from mt.inference.options import SearchOptions, load_search_defaults
from mt.model.checkpoint import LoadedModel
from mt.utils.checks import printable

OLDEST_TORCH = (2, 7)  # whose torch.export takes sizes that differ
PRECISIONS = ("float32",)
FILES = ("encoder.onnx", "decoder.onnx", "config.json", "tokenizer.model")


class Stack(nn.Module):
    """What encoder and decoder share: embedding, positions and heads."""

    encodings: Tensor  # [positions, d_model]

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.model: Any = loaded.model
        self.register_buffer("encodings", position_encodings(loaded))

    def embed(self, embedding: Any, ids: Tensor, positions: Tensor) -> Tensor:
        """Ids [R, T] -> [R, T, d_model] (3.4, 3.5)."""
        scaled = embedding(ids) * math.sqrt(self.model.d_model)
        return scaled + self.encodings[positions]

    def heads(self, x: Tensor) -> Tensor:
        """[R, T, h * width] -> [R, h, T, width]."""
        return x.unflatten(2, (self.model.h, -1)).transpose(1, 2)

    def attention(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        """[R, h, T, width] over [R, h, S, width] -> [R, T, h * width] (3.2.1); adds ``mask``."""
        scores = Q @ K.transpose(2, 3) * self.model.scale
        scores = scores if mask is None else scores + mask
        return (scores.softmax(dim=-1) @ V).transpose(1, 2).flatten(2)

    def mask(self, source: Tensor) -> Tensor:
        """[R, S] -> [R, 1, 1, S]: 0 for a token, a large negative number for padding."""
        return (source == PAD)[:, None, None].float() * -1e9


class Encoder(Stack):
    def forward(self, source: Tensor) -> Tensor:
        mask = self.mask(source)
        x = self.embed(self.model.embedding, source, torch.arange(source.shape[1]))
        for layer in self.model.encoder:
            x = layer.add_norm[0](x, partial(self.attend, layer.self_attention, mask))
            x = layer.add_norm[1](x, layer.feed_forward)
        if self.model.encoder_norm is not None:
            x = self.model.encoder_norm(x)
        cross = [
            torch.stack([self.heads(y) for y in layer.cross_attention.W_KV(x).chunk(2, dim=-1)])
            for layer in self.model.decoder
        ]
        return torch.stack(cross)

    def attend(self, attention: Any, mask: Tensor, x: Tensor) -> Tensor:
        Q, K, V = map(self.heads, attention.W_QKV(x).chunk(3, dim=-1))
        return attention.W_O(self.attention(Q, K, V, mask))


class Decoder(Stack):
    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__(loaded)
        self.register_buffer("output_bias", output_bias(loaded))

    def forward(
        self, token: Tensor, source: Tensor, cross: Tensor, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        mask = self.mask(source)
        T = past.shape[4]
        embedding = self.model.target_embedding or self.model.embedding
        x = self.embed(embedding, token[:, None], torch.arange(T, T + 1))
        present = []
        for layer, past_cache, source_cache in zip(self.model.decoder, past, cross, strict=True):
            x, cache = self.step(layer, x, past_cache, source_cache, mask)
            present.append(cache)
        if self.model.decoder_norm is not None:
            x = self.model.decoder_norm(x)
        return self.model.project(x[:, 0]) + self.output_bias, torch.stack(present)

    def step(
        self, layer: Any, x: Tensor, past: Tensor, cross: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """A layer: x [R, 1, d_model] -> the same, and its cache with this token."""
        cache = past

        def attend_to_past(x: Tensor) -> Tensor:
            nonlocal cache
            Q, *new = map(self.heads, layer.self_attention.W_QKV(x).chunk(3, dim=-1))
            cache = torch.cat((past, torch.stack(new)), dim=3)
            return layer.self_attention.W_O(self.attention(Q, cache[0], cache[1], None))

        def attend_to_source(x: Tensor) -> Tensor:
            Q = self.heads(layer.cross_attention.W_Q(x))
            return layer.cross_attention.W_O(self.attention(Q, cross[0], cross[1], mask))

        x = layer.add_norm[0](x, attend_to_past)
        x = layer.add_norm[1](x, attend_to_source)
        return layer.add_norm[2](x, layer.feed_forward), cache


def write(loaded: LoadedModel, folder: Path, precision: str) -> None:
    """Write the export to the empty ``folder``. ValueError if the format cannot hold the model."""
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        raise ValueError(f"PyTorch {torch.__version__} cannot write ONNX: install 2.13")
    variants = ("norm", "activation", "tied_embeddings", "scaled_scores")
    model = check_exportable(loaded, "the export", imported=True, variants=variants)
    config: dict[str, Any] = model.config
    R, S, T, width = 2, 5, 3, config["d_k"]
    source = torch.full((R, S), EOS)
    source[0, S - 2 :] = PAD
    cross = torch.zeros(config["N"], 2, R, model.h, S, width)
    past = cross[:, :, :, :, :T].contiguous()
    rows, length, steps = (torch.export.Dim(name) for name in ("rows", "length", "steps"))
    source_input = (source, {0: rows, 1: length})
    _export(Encoder(loaded), {"source": source_input}, ["cross"], folder / "encoder.onnx")
    inputs = {
        "token": (torch.full((R,), EOS), {0: rows}),
        "source": source_input,
        "cross": (cross, {2: rows, 4: length}),
        "past": (past, {2: rows, 4: steps}),
    }
    _export(Decoder(loaded), inputs, ["logits", "present"], folder / "decoder.onnx")
    (folder / "tokenizer.model").write_bytes(loaded.tokenizer.proto)
    # The decoder's first token is bos.
    about: dict[str, Any] = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
    about |= {
        "languages": loaded.config.get("languages"),
        "confidence": loaded.config.get("confidence"),
        "max_length": loaded.config["max_length"],  # of a source, eos not counted
        "search": loaded.config.get("search", {}),  # the model's own beam_size and alpha
        **{name: config[name] for name in ("vocab_size", "N", "h", "d_k")},
    }
    (folder / "config.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _export(
    module: nn.Module, inputs: dict[str, tuple[Tensor, Any]], outputs: list[str], file: Path
) -> None:
    """Write ``file``. ``inputs`` has by name an example and the dimensions that may change."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # hides its list of optional libraries that are missing
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module.eval(), tuple(example for example, _ in inputs.values()), file,
                input_names=list(inputs), output_names=outputs,
                dynamic_shapes={name: sizes for name, (_, sizes) in inputs.items()},
                external_data=False, dynamo=True, verbose=False,
            )  # fmt: skip
    finally:
        log.setLevel(level)
    _strip_metadata(file)


def _strip_metadata(file: Path) -> None:
    """Remove torch's notes about the export: stack traces with this machine's paths, code."""
    import onnx

    model = onnx.load(file)
    graph = model.graph
    values = *graph.input, *graph.output, *graph.value_info, *graph.initializer
    for part in (model, graph, *graph.node, *values):
        for field in ("metadata_props", "doc_string"):
            if field in part.DESCRIPTOR.fields_by_name:  # older versions of onnx have fewer
                part.ClearField(field)
    onnx.save(model, file)


class State:
    """The state of ``mt.inference.beam_search.SearchModel``, with w hypotheses a sentence."""

    def __init__(self, source: np.ndarray, cross: np.ndarray) -> None:
        self.sentences = source, cross  # a row for each sentence
        self.past = cross[:, :, :, :, :0]  # [N, 2, B * w, h, T, width]
        self.widen(1)

    def widen(self, w: int) -> None:
        """Repeat source and cross for w hypotheses a sentence, in ``rows``."""
        source, cross = self.sentences
        self.w = w
        self.rows = self.sentences
        if w > 1:
            self.rows = source.repeat(w, axis=0), cross.repeat(w, axis=2)

    def select(self, order: list[int]) -> None:
        """Keep these sentences, in this order."""
        source, cross = self.sentences
        self.sentences = source[order], cross[:, :, order]
        self.past = self.past[:, :, [i * self.w + j for i in order for j in range(self.w)]]
        self.widen(self.w)


class Engine(OwnTokenizer):
    """The export as onnxruntime runs it, a ``SearchModel`` of ``mt.inference.beam_search``.

    Raises FileNotFoundError or ValueError that says what is wrong with the folder.
    """

    def __init__(self, folder: str | os.PathLike[str], threads: int | None = None) -> None:
        import onnxruntime

        folder = Path(folder)
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder}: not written by mt.export --to onnx, {name} is missing"
                )
        self.options = load_search_defaults(folder)
        self.computes_in = "float32"
        self.tokenizer = Tokenizer.load(folder / "tokenizer.model")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        try:
            self.encoder, self.decoder = (
                onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
                for path in (folder / "encoder.onnx", folder / "decoder.onnx")
            )
        except Exception as error:  # onnxruntime raises kinds of its own
            raise ValueError(f"{folder}: {printable(' '.join(str(error).split()))}") from None

    def greedy(self, sources: Sequence[list[int]]) -> list[list[int]]:
        results = search(self, pad([[*ids, EOS] for ids in sources]), SearchOptions(beam_size=1))
        return [hypotheses[0].ids for hypotheses in results]

    def start(self, src: Tensor) -> State:
        source = src.numpy()
        (cross,) = self.encoder.run(["cross"], {"source": source})
        return State(source, cross)

    def step(self, tokens: Tensor, state: State, parents: Tensor | None = None) -> Tensor:
        B, w = tokens.shape
        if parents is not None:
            rows = torch.arange(B)[:, None] * state.w + parents
            state.past = state.past[:, :, rows.flatten().numpy()]
            state.widen(w)
        source, cross = state.rows
        inputs = {"token": tokens.flatten().numpy(), "source": source, "cross": cross}
        logits, state.past = self.decoder.run(["logits", "present"], {**inputs, "past": state.past})
        return torch.from_numpy(logits).view(B, w, -1)
