"""transformers: a folder for ``MarianMTModel`` and, by ``AutoTokenizer``, ``MarianTokenizer``.

Needs transformers, the optional extra ``huggingface``.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from mt.data.batch_sampler import pad
from mt.data.special_ids import EOS, PAD, UNK
from mt.export import common
from mt.inference.options import MAX_EXTRA, load_search_defaults
from mt.model import marian
from mt.model.checkpoint import LoadedModel

PRECISIONS = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def write(loaded: LoadedModel, folder: Path, precision: str) -> None:
    """Write the export to the empty ``folder``. ValueError if Marian cannot run the model."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    ours = common.check_exportable(loaded, "Marian", learned=False, variants=["activation"])
    positions = common.num_positions(loaded)
    config = transformers.MarianConfig(**marian.marian_config(ours, positions))
    model: Any = transformers.MarianMTModel(config)
    weights = marian.to_marian(ours, common.output_bias(loaded))
    keys = model.load_state_dict(weights, strict=False)
    derived = (*marian.TIED, marian.SINUSOIDS)
    missing = [name for name in keys.missing_keys if not name.endswith(derived)]
    assert not missing, missing
    assert not keys.unexpected_keys, keys.unexpected_keys
    model.tie_weights()
    search = load_search_defaults(loaded.path)
    model.generation_config = transformers.GenerationConfig(
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=config.decoder_start_token_id,
        num_beams=search.beam_size, length_penalty=common.length_exponent(search.alpha),
        max_length=positions - 1,
    )  # fmt: skip
    model.to(PRECISIONS[precision]).save_pretrained(folder)
    for name in ("source.spm", "target.spm"):
        (folder / name).write_bytes(loaded.tokenizer.proto)
    for weights_file in folder.glob("*.safetensors"):  # which only the owner could read
        shutil.copymode(folder / "source.spm", weights_file)
    pieces = loaded.tokenizer.all_pieces()
    source, target = loaded.config.get("languages") or ["en", "de"]
    tokenizer_config = {
        "tokenizer_class": "MarianTokenizer", "source_lang": source, "target_lang": target,
        "unk_token": pieces[UNK], "eos_token": pieces[EOS], "pad_token": pieces[PAD],
        "model_max_length": loaded.config["max_length"] + 1, "separate_vocabs": False,
    }  # fmt: skip
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    for name, content in (("vocab", vocabulary), ("tokenizer_config", tokenizer_config)):
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (folder / f"{name}.json").write_text(text, "utf-8")


class Engine:
    """The export as transformers runs it."""

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
        with torch.inference_mode():
            outputs = self.model.generate(
                input_ids=src, attention_mask=(src != PAD).long(), num_beams=1, do_sample=False,
                max_new_tokens=max(map(len, sources)) + MAX_EXTRA + 1, max_length=None,
            )  # fmt: skip
        rows = [row[1:].tolist() for row in outputs]  # without bos
        return [ids[: ids.index(EOS)] if EOS in ids else ids for ids in rows]
