"""What is around the search: texts become ids of inputs, and outputs become texts.

Shapes: N layers, h heads, T target tokens and S source tokens, eos counted in both.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from mt.data.batch_sampler import pad
from mt.data.special_ids import EOS
from mt.data.tokenizer import Tokenizer
from mt.inference.alignment import Aligner, find_aligner
from mt.inference.batch_runner import pick_workers, run_batches
from mt.inference.confidence import Calibration
from mt.inference.constraints import Vocabulary
from mt.inference.decoder_only import DecoderOnlyModel, make_inference
from mt.inference.incremental import Ensemble
from mt.inference.inputs import Input, add_prefixes, add_terms, plan_inputs, strings
from mt.inference.options import SearchOptions
from mt.inference.outputs import Output, join, texts
from mt.inference.terms import TermEncoder, TermRules, Terms
from mt.inference.translation import Translation
from mt.model.transformer import Stacks

Result = TypeVar("Result")


class TextModels:
    """One model or several as an ensemble, with their tokenizer.

    The arguments are those of ``mt.inference.translator.Translator``.
    """

    def __init__(
        self,
        model: Stacks | Sequence[Stacks],
        tokenizer: Tokenizer,
        max_length: int,
        name: str = "",
        precision: str = "float32",
        workers: int | None = 1,
        options: SearchOptions | None = None,
        configs: Sequence[dict[str, Any]] = (),
        calibration: Calibration | None = None,
    ) -> None:
        models = [model] if isinstance(model, Stacks) else list(model)
        if not models:
            raise ValueError("no model to translate with")
        self.models = [make_inference(model, precision) for model in models]
        self.model = self.models[0] if len(models) == 1 else Ensemble(self.models)
        self.exact = all(model.exact for model in self.models)  # whatever the batch
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.name = name
        self.workers = pick_workers(workers, self.models[0].device)
        self.options = options or SearchOptions()  # the defaults of a call
        self.configs = configs  # config.json of each model's folder
        self.calibration = calibration

    def plan(
        self,
        lines: list[str],
        prefixes: Iterable[str] | None = None,
        split: bool = False,
        terms: TermRules | Sequence[Terms] | None = None,
    ) -> list[list[Input]]:
        """What the model translates of each line: nothing of a blank one, or one or more inputs.

        Raises ValueError unless there is a prefix for each line, or ``prefixes`` is None; and for
        a prefix that the terms forbid.
        """
        prefixes = None if prefixes is None else strings("prefixes", prefixes)
        if isinstance(terms, TermRules) and prefixes:
            terms.check_prefixes(prefixes)
        plan = plan_inputs(lines, self.tokenizer, self.max_length, split, prefixes or ())
        if prefixes is not None:
            add_prefixes(plan, prefixes, self.tokenizer)
        if terms:
            add_terms(plan, terms, TermEncoder(self.tokenizer, self.vocabulary))
        return plan

    def attend(
        self,
        inputs: list[Input],
        outputs: list[list[int]],
        batch_size: int,
        use: Callable[[Input, list[int], Tensor], Result],
    ) -> list[Result]:
        """What ``use`` makes of each input, its output and their attention [N, h, T, S].

        The attention is that of the first model of an ensemble. That of one batch at a time is in
        memory.
        """

        @torch.inference_mode()  # it belongs to a thread, so it does not stand around run_batches
        def attend(batch: list[int]) -> list[Result]:
            batch_inputs, batch_outputs = [inputs[i] for i in batch], [outputs[i] for i in batch]
            src = self.pad_sources([source.ids for source in batch_inputs])
            weights = self.models[0].cross_attention_weights(src, batch_outputs)
            return list(map(use, batch_inputs, batch_outputs, weights))

        lengths = [max(len(s.ids), len(ids)) + 1 for s, ids in zip(inputs, outputs, strict=True)]
        exact = self.models[0].precision == "float32"  # in int8, what it gives is PyTorch's
        return run_batches(attend, lengths, 1, batch_size, self.workers, exact)

    def join(self, line: str, outputs: Sequence[Output]) -> Translation:
        """The translation of a line from those of its inputs."""
        return join(line, outputs, self.tokenizer, lambda: self.aligner, self.calibration)

    @cached_property
    def aligner(self) -> Aligner:
        """How the attention of the first model shows which words belong together."""
        return find_aligner(self.models[0], self.tokenizer)

    @property
    def languages(self) -> tuple[str, str]:
        """Codes of the source's and the target's language."""
        languages = self.configs[0].get("languages") if self.configs else None
        source, target = languages or ("en", "de")
        return source, target

    @property
    def is_language_model(self) -> bool:
        """Whether it has learned texts, which it continues, and no translations."""
        source, target = self.languages
        return source == target and isinstance(self.models[0], DecoderOnlyModel)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """How the pieces are written: terms need it."""
        return Vocabulary.of(self.tokenizer)

    def pad_sources(self, sources: list[list[int]]) -> Tensor:
        """Ids without eos -> [B, S] on the model's device, with eos, padded at the end."""
        return pad([[*ids, EOS] for ids in sources]).to(self.models[0].device)

    def texts(self, ids: list[list[int]]) -> list[str]:
        return texts(ids, self.tokenizer)
