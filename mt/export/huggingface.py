"""transformers: a folder for ``MarianMTModel`` and, by ``AutoTokenizer``, ``MarianTokenizer``.

Needs transformers, the optional extra ``huggingface``.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mt.data.batch_sampler import pad
from mt.data.special_ids import EOS, PAD, UNK
from mt.export.common import check, length_penalty, longest, never, pieces
from mt.inference.options import MAX_EXTRA, load_search_defaults
from mt.model import marian
from mt.model.checkpoint import LoadedModel

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def write(loaded: LoadedModel, folder: Path, precision: str) -> None:
    """Into ``folder``, which is there and empty."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    check(loaded, "Marian", learned=False)
    positions = longest(loaded)
    config = transformers.MarianConfig(**marian.config(loaded.model, positions))
    model: Any = transformers.MarianMTModel(config)
    found = model.load_state_dict(marian.weights(loaded.model, never(loaded)), strict=False)
    known = (*marian.TIED, marian.SINUSOIDS)
    lacking = [name for name in found.missing_keys if not name.endswith(known)]
    assert not lacking, lacking
    assert not found.unexpected_keys, found.unexpected_keys
    model.tie_weights()
    own = load_search_defaults(loaded.path)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD,
        eos_token_id=EOS,
        decoder_start_token_id=config.decoder_start_token_id,
        num_beams=own.beam_size,
        length_penalty=length_penalty(own.alpha),
        max_length=positions - 1,
    )
    model.to(PRECISIONS[precision]).save_pretrained(folder)
    words = pieces(loaded.tokenizer)
    vocabulary = {word: i for i, word in enumerate(words)}
    (folder / "vocab.json").write_text(
        json.dumps(vocabulary, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(loaded.tokenizer.proto)
    source, target = loaded.config.get("languages") or ["en", "de"]
    about = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": source,
        "target_lang": target,
        "unk_token": words[UNK],
        "eos_token": words[EOS],
        "pad_token": words[PAD],
        "model_max_length": loaded.config["max_length"] + 1,
        "separate_vocabs": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1) + "\n", "utf-8")


class Engine:
    """What transformers itself makes of the folder."""

    def __init__(self, folder: Path) -> None:
        import transformers

        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model: Any = transformers.MarianMTModel.from_pretrained(folder).eval()
        self.computes_in = str(self.model.dtype).removeprefix("torch.")

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """Ids without eos, by the folder's own tokenizer."""
        return [ids[:-1] for ids in self.tokenizer(list(sentences))["input_ids"]]

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Texts, by the folder's own tokenizer."""
        rows = [list(row) for row in ids]
        return list(self.tokenizer.batch_decode(rows, skip_special_tokens=True))

    def greedy(self, sources: Sequence[Sequence[int]]) -> list[list[int]]:
        src = pad([[*ids, EOS] for ids in sources])
        most = max(map(len, sources)) + MAX_EXTRA + 1
        with torch.inference_mode():
            found = self.model.generate(
                input_ids=src, attention_mask=(src != PAD).long(), num_beams=1, do_sample=False,
                max_new_tokens=most, max_length=None,
            )  # fmt: skip
        ends = [row[1:].tolist() for row in found]
        return [ids[: ids.index(EOS)] if EOS in ids else ids for ids in ends]
