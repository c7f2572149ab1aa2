"""The translators that the benchmarks measure, each driven as its own project drives it.

`benchmark_translate.py` says what is equal and what is not, and is what to run. The
peers' own interpreters read this file too: at its top it imports nothing but Python's own.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmark_models import (
    BOS,
    EOS,
    PAD,
    UNK,
    Size,
    fairseq_model,
    joeynmt_model,
    marian,
    opennmt_model,
    padded,
    sockeye_model,
    word,
)

REFERENCE = "ctranslate2-float32"

Translate = Callable[[list[list[int]], int, int], list[int]]
"""(sources, length, beam) -> tokens of each sentence's best hypothesis, `length` if all is well."""


class Setup(NamedTuple):
    threads: int
    scratch: Path  # converted models wait here for the next round


def build_mt(
    size: Size, setup: Setup, precision: str = "float32", workers: bool = False
) -> Translate:
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from mt.inference.beam_search import search
    from mt.inference.incremental import InferenceModel
    from mt.inference.options import SearchOptions
    from mt.model.transformer import Transformer

    model = Transformer(
        size.vocabulary, N=size.layers, d_model=size.d_model, d_ff=size.d_ff, h=size.heads
    ).eval()
    decoder = InferenceModel(model, precision)
    parts = setup.threads if workers else 1
    pool = ThreadPoolExecutor(parts, initializer=partial(torch.set_num_threads, 1))

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        # eos is the last of the tokens, and the options do not count it
        options = SearchOptions(beam_size=beam, min_length=length - 1, max_length=length - 1)

        def part(rows: list[list[int]]) -> list[int]:
            found = search(decoder, padded(rows, EOS, PAD), options)
            return [len(hypotheses[0].ids) + 1 for hypotheses in found]

        if not workers:
            return part(sources)
        rows = -(-len(sources) // parts)
        slices = [sources[i : i + rows] for i in range(0, len(sources), rows)]
        return [n for lengths in pool.map(part, slices) for n in lengths]

    return translate


def ban_specials(model: Any) -> None:
    """Pad, unk and bos are never chosen, as in our search."""
    model.final_logits_bias[:, [PAD, UNK, BOS]] = -1e9


def build_transformers(size: Size, setup: Setup) -> Translate:
    import torch

    model = marian(size)
    ban_specials(model)

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        src = padded(sources, EOS, PAD)
        with torch.inference_mode():
            ids = model.generate(
                input_ids=src,
                attention_mask=(src != PAD).long(),
                num_beams=beam,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
            )
        return (ids[:, 1:] != PAD).sum(dim=1).tolist()

    return translate


def convert_marian(model: Any, folder: Path) -> None:
    """Write a CTranslate2 model folder.

    Not by its loader for Marian, which drops a row of the vocabulary and starts from a zero
    embedding, but by the one for Bart, which that one builds on and which is the same otherwise.
    """
    from ctranslate2.converters.transformers import BartLoader

    model.config.normalize_before = False
    model.config.normalize_embedding = False
    spec = BartLoader().get_model_spec(model)
    words = [word(i) for i in range(model.config.vocab_size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = words[UNK : EOS + 1]
    spec.config.decoder_start_token = words[BOS]
    spec.validate()
    spec.optimize()
    partial_folder = folder.with_name(folder.name + ".partial")
    partial_folder.mkdir()
    spec.save(str(partial_folder))
    partial_folder.rename(folder)


def open_ctranslate2(folder: Path, threads: int, compute_type: str, layout: str) -> Any:
    import ctranslate2

    inter, intra = (threads if n == "N" else int(n) for n in layout.split("x"))
    return ctranslate2.Translator(
        str(folder),
        device="cpu",
        compute_type=compute_type,
        inter_threads=inter,
        intra_threads=intra,
    )


def build_ctranslate2(size: Size, setup: Setup, compute_type: str, layout: str) -> Translate:
    folder = setup.scratch / f"ctranslate2-{size.d_model}-{size.vocabulary}"
    if not folder.exists():
        convert_marian(marian(size), folder)
    translator = open_ctranslate2(folder, setup.threads, compute_type, layout)
    workers = setup.threads if layout.startswith("N") else 1

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        words = [[word(i) for i in [*ids, EOS]] for ids in sources]
        results = translator.translate_batch(
            words,
            beam_size=beam,
            max_batch_size=-(-len(words) // workers),
            min_decoding_length=length,
            max_decoding_length=length,
        )
        return [len(result.hypotheses[0]) for result in results]

    return translate


def build_joeynmt(size: Size, setup: Setup) -> Translate:
    import torch
    from joeynmt.batch import Batch
    from joeynmt.search import search

    model = joeynmt_model(size).eval()
    pad, eos = model.pad_index, model.eos_index

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        src = padded(sources, eos, pad)
        batch = Batch(
            src=src,
            src_length=(src != pad).sum(dim=1),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(src)),
            device=src.device,
            pad_index=pad,
            eos_index=eos,
            is_train=False,
        )
        ids, _, _ = search(
            model=model,
            batch=batch,
            min_output_length=length,
            max_output_length=length,
            beam_size=beam,
            beam_alpha=1.0,
        )
        return (ids != pad).sum(axis=1).tolist()

    return translate


def build_opennmt(size: Size, setup: Setup) -> Translate:
    from onmt.translate import GNMTGlobalScorer, Translator

    model, _, vocabularies = opennmt_model(size)
    model.eval().requires_grad_(False)
    _, pad, _, eos = range(4)
    scorer = GNMTGlobalScorer(0.0, 0.0, "none", "none")  # no length or coverage penalty
    translator = Translator(
        model, vocabularies, max_length_ratio=0, global_scorer=scorer, report_score=False
    )

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        src = padded(sources, eos, pad)
        translator.beam_size = beam
        translator.min_length = translator.max_length = length
        batch = {"src": src[:, :, None], "srclen": (src != pad).sum(dim=1)}
        found = translator.translate_batch(batch, attn_debug=False)
        return [len(hypotheses[0]) for hypotheses in found["predictions"]]

    return translate


def build_fairseq(size: Size, setup: Setup) -> Translate:
    import torch

    model, words = fairseq_model(size)
    model.eval()
    from fairseq.sequence_generator import SequenceGenerator  # where fairseq_model has imported it

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        src = padded(sources, words.eos(), words.pad())
        # eos is the last of the tokens, and these options do not count it
        generator = SequenceGenerator(
            [model], words, beam_size=beam, max_len_b=length - 1, min_len=length - 1
        )
        lengths = (src != words.pad()).sum(dim=1)
        with torch.no_grad():
            found = generator.generate(
                [model], {"net_input": {"src_tokens": src, "src_lengths": lengths}}
            )
        return [len(hypotheses[0]["tokens"]) for hypotheses in found]

    return translate


def build_sockeye(size: Size, setup: Setup) -> Translate:
    import torch
    from sockeye import constants
    from sockeye.beam_search import CandidateScorer, get_search_algorithm

    model = sockeye_model(size, inference_only=True).eval().requires_grad_(False)
    model.output_layer.bias[[constants.PAD_ID, constants.EOS_ID]] = -1e9
    searches: dict[tuple[int, bool], Any] = {}

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        greedy = beam == 1 and len(sources) == 1  # its greedy search takes one sentence
        if (beam, greedy) not in searches:
            searches[beam, greedy] = get_search_algorithm(
                [model],
                beam_size=beam,
                device=torch.device("cpu"),
                output_scores=beam > 1,
                scorer=CandidateScorer(),
                constant_length_ratio=-1.0,
                greedy=greedy,
            )
        src = padded(sources, constants.EOS_ID, constants.PAD_ID).int()
        lengths = (src != constants.PAD_ID).sum(dim=1)
        with torch.inference_mode():
            found = searches[beam, greedy](
                src[:, :, None],
                torch.stack((lengths, torch.zeros_like(lengths)), dim=1).int(),
                restrict_lexicon=None,
                max_output_lengths=torch.full((len(src),), length, dtype=torch.int32),
            )
        return found.lengths.view(len(src), beam)[:, 0].tolist()  # the best comes first

    return translate


class Engine(NamedTuple):
    peer: str  # whose interpreter runs it: NAME of --python
    packages: tuple[str, ...]  # what that interpreter must have
    build: Callable[[Size, Setup], Translate]
    min_batch: int = 1


def _ours(**options: Any) -> Engine:
    return Engine("mt", ("mt.inference.incremental",), partial(build_mt, **options))


def _ctranslate2(compute_type: str, layout: str) -> Engine:
    build = partial(build_ctranslate2, compute_type=compute_type, layout=layout)
    min_batch = 2 if layout.startswith("N") else 1
    # transformers makes the model that is converted
    return Engine("ctranslate2", ("ctranslate2", "transformers"), build, min_batch)


ENGINES = {
    "mt-float32": _ours(),
    "mt-bfloat16": _ours(precision="bfloat16"),
    "mt-int8": _ours(precision="int8"),
    "mt-workers": _ours(workers=True)._replace(min_batch=2),
    "transformers": Engine("transformers", ("transformers",), build_transformers),
    REFERENCE: _ctranslate2("float32", "1xN"),
    "ctranslate2-int8-1x1": _ctranslate2("int8", "1x1"),
    "ctranslate2-int8-1xN": _ctranslate2("int8", "1xN"),
    "ctranslate2-int8-Nx1": _ctranslate2("int8", "Nx1"),
    "joeynmt": Engine("joeynmt", ("joeynmt",), build_joeynmt),
    "opennmt-py": Engine("opennmt-py", ("onmt",), build_opennmt),
    "fairseq": Engine("fairseq", ("fairseq",), build_fairseq),
    "sockeye": Engine("sockeye", ("sockeye",), build_sockeye),
}
