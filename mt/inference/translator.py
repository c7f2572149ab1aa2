"""Text in, text out: ``Translator`` holds models and their tokenizer, and runs the search.

Shapes: N layers, h heads, T target tokens and S source tokens, eos counted in both.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from mt.inference.batch_runner import Progress, run_batches
from mt.inference.beam_search import score, search
from mt.inference.confidence import load_calibration
from mt.inference.constraints import Constraints
from mt.inference.decoder_only import DecoderOnlyModel
from mt.inference.incremental import InferenceModel
from mt.inference.inputs import Input, add_prefixes, encode_pairs, split_lines, strings
from mt.inference.learned_positions import warn_of_unlearned_positions
from mt.inference.mbr import by_risk
from mt.inference.options import (
    CONTINUATION_TOKENS,
    MAX_LENGTH,
    SearchOptions,
    load_search_defaults,
)
from mt.inference.outputs import Output
from mt.inference.sentence_search import Hypothesis
from mt.inference.term_places import lacks_items, may_stand_elsewhere, with_term_in_place
from mt.inference.terms import TermRules, Terms
from mt.inference.text_models import TextModels
from mt.inference.translation import Translation
from mt.model import checkpoint
from mt.model.device import pick_device
from mt.model.model_path import resolve_model_path
from mt.utils.atomic import FilePath
from mt.utils.checks import check_int

if TYPE_CHECKING:
    from mt.inference.inspection import Inspection


class Translator(TextModels):
    """Translates lines of text with one model, or with several as an ensemble.

    In float32, and in int8 where ``mt.inference.native`` runs, the result of a line does not depend
    on the other lines. Training showed the model no line longer than ``max_length`` tokens: the
    translator splits such a line after a sentence or clause (``mt.inference.sentence_splitter``),
    translates the parts, and warns. ``workers`` threads translate one batch each; None is one for
    each of torch's threads on the CPU, else 1.

    Raises ValueError without a model, or for a precision or ``workers`` that make no sense.
    """

    @classmethod
    def load(
        cls,
        path: FilePath | Sequence[FilePath] | None = None,
        device: str = "auto",
        precision: str = "float32",
        workers: int | None = None,
    ) -> "Translator":
        """A translator from a model folder or checkpoint, or from several, as an ensemble.

        ``path`` None is the bundled model, ``latest`` the newest one under outputs/, and ORG/NAME a
        MarianMT model of the hub (``mt.model.model_path``). An ensemble takes its search defaults
        and its calibration from the first model. ``device`` is cpu, cuda, cuda:1 or auto;
        ``precision`` is float32, bfloat16 or int8.
        Raises OSError or ValueError that names the folder or option and what is wrong, TypeError
        for what is no path.
        """
        if not isinstance(path, str | os.PathLike | Sequence | None) or isinstance(path, bytes):
            raise TypeError(f"path: must be a folder or several, not {type(path).__name__}")
        names = [path] if path is None or isinstance(path, str | os.PathLike) else path
        paths = [resolve_model_path(name) for name in names]
        if not paths:
            raise ValueError("no model to translate with")
        torch_device = pick_device(device)
        first, *others = loaded = [checkpoint.load(path, torch_device) for path in paths]
        for other in others:
            if other.tokenizer.proto != first.tokenizer.proto:
                raise ValueError(
                    f"{other.path}: not the tokenizer of {first.path}: "
                    "an ensemble needs models of one vocabulary"
                )
            if other.config.get("languages") != first.config.get("languages"):
                raise ValueError(f"{other.path}: not the languages of {first.path}")
        return cls(
            [model.model for model in loaded],
            first.tokenizer,
            min(model.config["max_length"] for model in loaded),
            " + ".join(map(str, paths)),
            precision,
            workers,
            load_search_defaults(paths[0]),
            [model.config for model in loaded],
            load_calibration(paths[0]),
        )

    def translate(
        self,
        sentences: Iterable[str],
        options: SearchOptions | None = None,
        *,
        prefixes: Iterable[str] | None = None,
        terms: TermRules | Sequence[Terms] | None = None,
        split: bool = False,
        batch_size: int = 64,
        on_progress: Progress | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """Translate lines; returns one Translation for each, in order.

        ``options`` default to the model's own; ``settings`` replace single SearchOptions by name.
        ``prefixes``, one for each line, are the texts with which the translations must begin.
        ``terms`` are what they must and must not contain: rules, or Terms for each line. With
        ``split`` a line is text as people type it: each of its sentences is translated on its own,
        and one in capitals is translated in lower case and put in capitals again. ``batch_size``
        counts sentences. ``on_progress`` is called after each batch with the number of lines that
        are done with it: a part of a line counts as a fraction, a blank line does not count.

        Raises ValueError on options that make no sense and for a language model, TypeError on
        unknown options and on lines that are not strings.
        """
        options = _options(options, self.options, settings)
        if isinstance(sentences, str):
            raise TypeError("translate wants a list of lines; translate_text takes one text")
        lines = strings("sentences", sentences)
        check_int("batch_size", batch_size)
        plan = self.plan(lines, prefixes, split, terms)
        inputs = list(itertools.chain.from_iterable(plan))
        if inputs and self.is_language_model:
            raise ValueError("a language model, trained with data=text: give it --continue TEXT")
        if any(source.terms for source in inputs):
            options.check_terms()
        parts = [len(line_inputs) for line_inputs in plan for _ in line_inputs]

        def on_batch(batch: list[int]) -> None:
            if on_progress is not None:  # whole numbers as long as no line has parts
                on_progress(sum(1 if parts[i] == 1 else 1 / parts[i] for i in batch))

        hypotheses = self._search(inputs, options, batch_size, on_batch)
        pairs = zip(inputs, hypotheses, strict=True)
        lengths = [(len(source.ids), len(best.ids)) for source, (best, *_) in pairs]
        warn_of_unlearned_positions(self.models, lengths)
        attention: Sequence[Tensor | None] = [None] * len(inputs)
        if options.attention:
            best = [n_best[0].ids for n_best in hypotheses]
            attention = self.attend(inputs, best, batch_size, lambda _, __, weights: weights)
        outputs = map(Output, inputs, hypotheses, attention)
        return [
            self.join(line, list(itertools.islice(outputs, len(line_inputs))))
            for line, line_inputs in zip(lines, plan, strict=True)
        ]

    def translate_text(self, text: str, **arguments: Any) -> str:
        """Translate a text of any length sentence by sentence, and keep its line breaks."""
        if not isinstance(text, str):
            raise TypeError(f"text: must be a string, not {type(text).__name__}")
        lines, breaks = split_lines(text)
        translated = [result.text for result in self.translate(lines, split=True, **arguments)]
        return "".join(map("".join, zip(translated, (*breaks, ""), strict=True)))

    def score(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        alpha: float | None = None,
        batch_size: int = 64,
        on_progress: Progress | None = None,
    ) -> list[Translation]:
        """Score given translations: ``score``, and log P of each piece in ``parts``.

        A pair is scored as a whole, never in parts. ``alpha`` None is the model's own. Raises
        ValueError if the numbers of sources and targets differ, a line has more than MAX_LENGTH
        tokens or ``alpha`` makes no sense, TypeError for lines that are not strings.
        """
        alpha = SearchOptions(alpha=self.options.alpha if alpha is None else alpha).alpha
        check_int("batch_size", batch_size)
        sources, targets = strings("sources", sources), strings("targets", targets)
        source_ids, target_ids = encode_pairs(sources, targets, self.tokenizer, self.max_length)

        def score_batch(batch: list[int]) -> list[Hypothesis]:
            src = self.pad_sources([source_ids[i] for i in batch])
            return score(self.model, src, [target_ids[i] for i in batch], alpha)

        pairs = [(len(s), len(t)) for s, t in zip(source_ids, target_ids, strict=True)]
        warn_of_unlearned_positions(self.models, pairs)
        lengths = [max(pair) + 1 for pair in pairs]
        scored = run_batches(
            score_batch, lengths, 1, batch_size, self.workers, self.exact,
            lambda batch: on_progress(len(batch)) if on_progress is not None else None,
        )  # fmt: skip
        results = []
        rows = zip(sources, targets, source_ids, scored, strict=True)
        for source, target, ids, hypothesis in rows:
            result = self.join(source, [Output(Input(ids, False, []), [hypothesis], None)])
            results.append(replace(result, text=target, n_best=((target, hypothesis.score),)))
        return results

    def continue_text(
        self,
        text: str,
        options: SearchOptions | None = None,
        max_tokens: int = CONTINUATION_TOKENS,
        **settings: Any,
    ) -> Translation:
        """Text that begins with ``text``, which a decoder-only model goes on writing.

        ``options`` and ``settings`` are those of ``translate``; without any it draws one sample.
        ``n_best`` has as many texts as ``n_best`` asks for. At most ``max_tokens`` tokens are
        added. It warns of characters that the vocabulary cannot spell. Raises ValueError for a
        model with an encoder, and for a text that is too long.
        """
        if not all(isinstance(model, DecoderOnlyModel) for model in self.models):
            raise ValueError(
                "a model with an encoder does not continue a text: train one with data=text and "
                "model=decoder_only_tiny, or a larger one"
            )
        check_int("max_tokens", max_tokens)
        default = SearchOptions() if settings else SearchOptions(samples=1)
        options = _options(options, default, settings)
        plan = [[Input([], False, [], text)]]
        add_prefixes(plan, [text], self.tokenizer)
        ((source,),) = plan
        if (length := len(source.prefix)) >= MAX_LENGTH:
            raise ValueError(f"a text of {length:,} tokens: must have less than {MAX_LENGTH:,}")
        options = replace(options, max_length=min(length + max_tokens, MAX_LENGTH))
        (hypotheses,) = self._search([source], options, 1, lambda _: None)
        warn_of_unlearned_positions(self.models, [(0, len(hypotheses[0].ids))])
        return self.join(text, [Output(source, hypotheses, None)])

    @property
    def can_inspect(self) -> bool:
        """Whether ``inspect`` knows the model: one encoder-decoder with post-LN."""
        model, *others = self.models
        return not others and isinstance(model, InferenceModel) and not model.is_pre

    def inspect(
        self,
        sentence: str,
        target: str | None = None,
        options: SearchOptions | None = None,
        prefix: str = "",  # the search begins with it
        **settings: Any,
    ) -> "Inspection":
        """What happens inside, for one sentence and its translation or a given ``target``.

        ``mt.inspection`` makes a report, a page and pictures of it. Raises ValueError for an
        ensemble, for text that is blank or too long for one input, and unless the search is beam
        search; TypeError for what is no string.
        """
        if len(self.models) > 1:
            raise ValueError("several models: inspect one at a time")
        from mt.inference.inspection import inspect  # only when asked for: it takes time

        options = _options(options, self.options, settings)
        if not self.can_inspect:
            raise ValueError(
                "only an encoder-decoder with post-LN can be inspected: see docs/rivals.md"
            )
        model = cast(InferenceModel, self.models[0])
        return inspect(
            model, self.tokenizer, self.max_length, self.aligner, sentence, target, prefix, options
        )

    def search(
        self,
        sources: list[list[int]],
        options: SearchOptions,
        prefixes: list[list[int]],
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first; each begins with the ids of its prefix."""
        return search(self.model, self.pad_sources(sources), options, prefixes, constraints)

    # The steps of translate

    def _search(
        self,
        inputs: list[Input],
        options: SearchOptions,
        batch_size: int,
        on_batch: Callable[[list[int]], object],
    ) -> list[list[Hypothesis]]:
        """The ``n_best`` hypotheses of each input, best first."""

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            batch_inputs = [inputs[i] for i in batch]
            hypotheses = self.search(
                [x.ids for x in batch_inputs],
                options.of_search,
                [x.prefix for x in batch_inputs],
                [x.constraints for x in batch_inputs],
            )
            return [self.by_risk(h, options) for h in hypotheses] if options.mbr else hypotheses

        # A batch takes memory for the tokens that are read, and for those that must be written.
        lengths = [
            max(len(source.ids) + 1, len(source.prefix), options.min_length) for source in inputs
        ]
        hypotheses = run_batches(
            search_batch, lengths, options.width, batch_size, self.workers, self.exact, on_batch
        )
        if again := self.search_again(inputs, hypotheses, batch_size):
            new_hypotheses = self._search(list(again.values()), options, batch_size, lambda _: None)
            for i, found_again in zip(again, new_hypotheses, strict=True):
                hypotheses[i] = found_again
        return hypotheses

    def search_again(
        self, inputs: list[Input], hypotheses: list[list[Hypothesis]], batch_size: int = 1
    ) -> dict[int, Input]:
        """What to search again, by its number: now with its terms, or so that one has its place."""
        outputs = [best.ids for best, *_ in hypotheses]
        with_terms = [i for i, source in enumerate(inputs) if source.terms is not None]
        lacking = {
            i: inputs[i]._replace(attempt=1)
            for i in with_terms
            if lacks_items(inputs[i], self.texts([outputs[i]])[0])
        }
        numbers = [
            i
            for i in with_terms
            if i in lacking or may_stand_elsewhere(inputs[i], outputs[i], self.tokenizer)
        ]
        if not numbers:
            return {}
        aligner = self.aligner  # before threads ask for it
        open_inputs, open_outputs = [inputs[i] for i in numbers], [outputs[i] for i in numbers]

        def place(source: Input, output: list[int], attention: Tensor) -> Input | None:
            return with_term_in_place(source, output, attention, aligner, self.tokenizer)

        placed = zip(
            numbers, self.attend(open_inputs, open_outputs, batch_size, place), strict=True
        )
        return lacking | {i: source for i, source in placed if source is not None}

    def by_risk(self, hypotheses: list[Hypothesis], options: SearchOptions) -> list[Hypothesis]:
        """The ``n_best`` by expected chrF, best first."""
        return by_risk(hypotheses, self.texts([h.ids for h in hypotheses]), options)


def _options(
    options: SearchOptions | None, default: SearchOptions, settings: dict[str, Any]
) -> SearchOptions:
    """The given or the default options, with the settings that stand beside them."""
    if not isinstance(options, SearchOptions | None):
        kind = type(options).__name__
        raise TypeError(f"options: must be SearchOptions, not {kind}; or give beam_size=4 alone")
    return replace(options or default, **settings)
