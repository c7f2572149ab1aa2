"""A small random MarianMTModel, and the folder that transformers makes of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import PAIRS

from mt.data import tokenizer

transformers = pytest.importorskip("transformers")


def marian_model(activation: str = "swish", **changes: Any) -> Any:
    torch.manual_seed(2)
    config = transformers.MarianConfig(
        **{
            "vocab_size": 110,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "activation_function": activation,
            "max_position_embeddings": 64,
            "scale_embedding": True,
            "pad_token_id": 109,
            "eos_token_id": 0,
            "bos_token_id": 0,
            "decoder_start_token_id": 109,
            "forced_eos_token_id": 0,
            "share_encoder_decoder_embeddings": True,
            **changes,
        }
    )
    model = transformers.MarianMTModel(config).eval()
    positions = ("encoder.embed_positions", "decoder.embed_positions")
    for name, weight in model.named_parameters():
        if not any(part in name for part in positions):
            torch.nn.init.normal_(weight, std=0.3)
    torch.nn.init.normal_(model.final_logits_bias)
    return model


def write_marian(folder: Path) -> Path:
    """As transformers keeps a model of OPUS-MT: two SentencePiece models, one vocabulary."""
    folder.mkdir(exist_ok=True)
    pieces: dict[str, None] = {"</s>": None, "<unk>": None}
    for side, (name, size) in enumerate((("source", 90), ("target", 100))):
        learned = tokenizer.train([pair[side] for pair in PAIRS], size)
        (folder / f"{name}.spm").write_bytes(learned.proto)
        pieces |= dict.fromkeys(learned.pieces(list(range(4, size))))
    vocabulary = {piece: i for i, piece in enumerate([*pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    about = {"source_lang": "en", "target_lang": "de", "tokenizer_class": "MarianTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    padding = len(vocabulary) - 1
    model = marian_model(
        vocab_size=len(vocabulary),
        pad_token_id=padding,
        decoder_start_token_id=padding,
    )
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, torch.nn.LayerNorm):
                part.reset_parameters()
        model.final_logits_bias /= 10
        for layer in model.model.decoder.layers:  # else it repeats its input
            layer.fc2.weight *= 6
            layer.encoder_attn.out_proj.weight *= 3
    model.final_logits_bias[:, padding] = -1e4
    model.final_logits_bias[:, 1] = -1e4  # <unk>
    model.save_pretrained(folder)
    return folder
