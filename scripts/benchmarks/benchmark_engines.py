"""The translators that `benchmark_translate.py` measures, each driven as its own project drives it.

Other toolkits' interpreters run this file too, so its top imports the standard library only.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import benchmark_models as models
from benchmark_models import BOS, EOS, PAD, UNK, Size, padded, word

REFERENCE = "ctranslate2-float32"

Translate = Callable[[list[list[int]], int, int], list[int]]
"""(sources, length, beam) -> tokens of each sentence's best hypothesis, which must be `length`."""


class Setup(NamedTuple):
    threads: int
    scratch: Path  # keeps converted models for the next round
    device: str = "cpu"  # or cuda


def build_mt(
    size: Size,
    setup: Setup,
    precision: str = "float32",
    workers: bool = False,
    native: bool = True,
) -> Translate:
    from concurrent.futures import ThreadPoolExecutor

    if not native:
        os.environ["MT_NATIVE"] = "0"  # for this process, which has one engine

    import torch

    from mt.inference.beam_search import search
    from mt.inference.incremental import InferenceModel
    from mt.inference.options import SearchOptions
    from mt.model.transformer import Transformer

    model = Transformer(size.vocabulary, **size.of_mt()).eval().to(setup.device)
    inference_model = InferenceModel(model, precision)
    parts = setup.threads if workers else 1
    pool = ThreadPoolExecutor(parts, initializer=partial(torch.set_num_threads, 1))

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        # The last token is eos, which the options do not count.
        options = SearchOptions(beam_size=beam, min_length=length - 1, max_length=length - 1)

        def lengths(rows: list[list[int]]) -> list[int]:
            beams = search(inference_model, padded(rows, EOS, PAD).to(setup.device), options)
            return [len(hypotheses[0].ids) + 1 for hypotheses in beams]

        if not workers:
            return lengths(sources)
        rows = -(-len(sources) // parts)
        slices = [sources[i : i + rows] for i in range(0, len(sources), rows)]
        return [n for part in pool.map(lengths, slices) for n in part]

    return translate


def ban_specials(model: Any) -> None:
    """Forbid pad, unk and bos, as the search of mt does."""
    model.final_logits_bias[:, [PAD, UNK, BOS]] = -1e9


def generate(model: Any, sources: list[list[int]], **options: Any) -> Any:
    """transformers' search; returns ids [B, T] without bos."""
    import torch

    src = padded(sources, EOS, PAD).to(model.device)
    with torch.inference_mode():
        mask = (src != PAD).long()
        return model.generate(input_ids=src, attention_mask=mask, do_sample=False, **options)[:, 1:]


def build_transformers(size: Size, setup: Setup, precision: str = "float32") -> Translate:
    import torch

    model = models.marian(size)
    ban_specials(model)
    model.to(setup.device, getattr(torch, precision))

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        limits = {"min_new_tokens": length, "max_new_tokens": length}
        ids = generate(model, sources, num_beams=beam, **limits)
        return (ids != PAD).sum(dim=1).tolist()

    return translate


def convert_marian(model: Any, folder: Path) -> None:
    """Write a CTranslate2 model folder.

    CTranslate2's loader for Marian drops a row of the vocabulary and starts from a zero embedding.
    Its base, the loader for Bart, does neither and is the same otherwise.
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


def open_ctranslate2(
    folder: Path, threads: int, compute_type: str, layout: str, device: str = "cpu"
) -> Any:
    import ctranslate2

    inter, intra = (threads if n == "N" else int(n) for n in layout.split("x"))
    return ctranslate2.Translator(
        str(folder),
        device=device,
        compute_type=compute_type,
        inter_threads=inter,
        intra_threads=intra,
    )


def build_ctranslate2(size: Size, setup: Setup, compute_type: str, layout: str) -> Translate:
    folder = setup.scratch / f"ctranslate2-{size.d_model}-{size.vocabulary}"
    if not folder.exists():
        convert_marian(models.marian(size), folder)
    translator = open_ctranslate2(folder, setup.threads, compute_type, layout, setup.device)
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
    from joeynmt.search import search

    model = models.joeynmt_model(size).eval()

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        ids, _, _ = search(
            model=model,
            batch=models.joeynmt_batch(model, sources, None),
            min_output_length=length,
            max_output_length=length,
            beam_size=beam,
            beam_alpha=1.0,
        )
        return (ids != model.pad_index).sum(axis=1).tolist()

    return translate


def build_opennmt(size: Size, setup: Setup) -> Translate:
    from onmt.translate import GNMTGlobalScorer, Translator

    model, _, vocabularies = models.opennmt_model(size)
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
        results = translator.translate_batch(batch, attn_debug=False)
        return [len(hypotheses[0]) for hypotheses in results["predictions"]]

    return translate


def build_fairseq(size: Size, setup: Setup) -> Translate:
    import torch

    model, words = models.fairseq_model(size)
    model.eval()
    from fairseq.sequence_generator import SequenceGenerator  # after fairseq_model's import

    def translate(sources: list[list[int]], length: int, beam: int) -> list[int]:
        src = padded(sources, words.eos(), words.pad())
        # The last token is eos, which the options do not count.
        generator = SequenceGenerator(
            [model], words, beam_size=beam, max_len_b=length - 1, min_len=length - 1
        )
        inputs = {"src_tokens": src, "src_lengths": (src != words.pad()).sum(dim=1)}
        with torch.no_grad():
            beams = generator.generate([model], {"net_input": inputs})
        return [len(hypotheses[0]["tokens"]) for hypotheses in beams]

    return translate


def build_sockeye(size: Size, setup: Setup) -> Translate:
    import torch
    from sockeye import constants
    from sockeye.beam_search import CandidateScorer, get_search_algorithm

    model = models.sockeye_model(size, inference_only=True).eval().requires_grad_(False)
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
            result = searches[beam, greedy](
                src[:, :, None],
                torch.stack((lengths, torch.zeros_like(lengths)), dim=1).int(),
                restrict_lexicon=None,
                max_output_lengths=torch.full((len(src),), length, dtype=torch.int32),
            )
        return result.lengths.view(len(src), beam)[:, 0].tolist()  # the best comes first

    return translate


class Engine(NamedTuple):
    toolkit: str  # its interpreter runs the engine: NAME in --python
    build: Callable[..., Any]
    min_batch: int = 1
    devices: tuple[str, ...] = ("cpu",)


BOTH = ("cpu", "cuda")


def ctranslate2_engine(
    build: Callable[..., Any], compute_type: str, layout: str, *devices: str
) -> Engine:
    build = partial(build, compute_type=compute_type, layout=layout)
    least = 2 if layout.startswith("N") else 1
    return Engine("ctranslate2", build, least, devices or ("cpu",))


_ctranslate2 = partial(ctranslate2_engine, build_ctranslate2)
ENGINES = {
    "mt-float32": Engine("mt", build_mt, devices=BOTH),
    "mt-pytorch": Engine("mt", partial(build_mt, native=False)),
    "mt-bfloat16": Engine("mt", partial(build_mt, precision="bfloat16"), devices=BOTH),
    "mt-int8": Engine("mt", partial(build_mt, precision="int8")),
    "mt-workers": Engine("mt", partial(build_mt, workers=True), min_batch=2),
    "mt-int8-workers": Engine("mt", partial(build_mt, precision="int8", workers=True), min_batch=2),
    "transformers": Engine("transformers", build_transformers, devices=BOTH),
    "transformers-bfloat16": Engine(
        "transformers", partial(build_transformers, precision="bfloat16"), devices=("cuda",)
    ),
    REFERENCE: _ctranslate2("float32", "1xN", *BOTH),
    "ctranslate2-float32-Nx1": _ctranslate2("float32", "Nx1"),
    "ctranslate2-float16": _ctranslate2("float16", "1x1", "cuda"),
    "ctranslate2-int8-1x1": _ctranslate2("int8", "1x1"),
    "ctranslate2-int8-1xN": _ctranslate2("int8", "1xN"),
    "ctranslate2-int8-Nx1": _ctranslate2("int8", "Nx1"),
    "joeynmt": Engine("joeynmt", build_joeynmt),
    "opennmt-py": Engine("opennmt-py", build_opennmt),
    "fairseq": Engine("fairseq", build_fairseq),
    "sockeye": Engine("sockeye", build_sockeye),
}
TOOLKITS = sorted({engine.toolkit for engine in ENGINES.values()})
