"""Text in, text out: models, their tokenizer and the search behind one method."""

import itertools
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from mt.data.batch_sampler import pad, token_budget_splits
from mt.data.special_ids import BOS, EOS, UNK
from mt.data.tokenizer import Tokenizer
from mt.inference import sentence_splitter
from mt.inference.beam_search import Hypothesis, score, search
from mt.inference.incremental import Ensemble, InferenceModel
from mt.inference.options import SearchOptions, load_search_defaults
from mt.inference.translation import Segment, Translation
from mt.model import checkpoint
from mt.model.transformer import Transformer

log = logging.getLogger(__name__)

MAX_TOKENS = 8192  # padded source tokens times hypotheses in one batch
LEAST = 8  # sentences that a worker should have before another one is of use

Path = str | os.PathLike[str]
Progress = Callable[[int], object]
Result = TypeVar("Result")


class Translator:
    """Translates sentences with one model, or with several as an ensemble.

    In float32 a sentence's result does not depend on its neighbours. A line longer than
    ``max_length`` tokens, which the model never saw in training, is translated in parts cut behind
    a sentence or clause (``mt.inference.sentence_splitter``), and a warning says so. ``workers`` threads translate
    a batch each, with an equal share of torch's threads.
    """

    def __init__(
        self,
        model: Transformer | Sequence[Transformer],
        tokenizer: Tokenizer,
        max_length: int,
        name: str = "",
        precision: str = "float32",
        workers: int = 1,
        options: SearchOptions | None = None,
        configs: Sequence[dict[str, Any]] = (),
    ) -> None:
        models = [model] if isinstance(model, Transformer) else list(model)
        if not models:
            raise ValueError("no model to translate with")
        self.decoders = [InferenceModel(each, precision) for each in models]
        self.model = self.decoders[0] if len(models) == 1 else Ensemble(self.decoders)
        self.exact = precision == "float32"  # a result does not depend on its batch
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.name = name
        self.workers = check_workers(workers)
        self.options = options or SearchOptions()  # where a call says nothing else
        self.configs = configs  # of the models' folders

    @classmethod
    def load(
        cls,
        path: Path | Sequence[Path] | None = None,
        device: str = "auto",
        precision: str = "float32",
        workers: int | None = None,
    ) -> "Translator":
        """A translator from a model folder or checkpoint, or from several, as an ensemble.

        Without a ``path`` it is the model that comes with this package; ``latest`` is the newest
        under outputs/. An ensemble searches as the first one says. ``device`` is cpu, cuda, cuda:1
        or auto; ``precision`` float32, bfloat16 or int8; ``workers`` None is one for each of
        torch's threads on the CPU, and 1 elsewhere.
        Raises FileNotFoundError or ValueError that says what is wrong with a folder or an option.
        """
        names = [path] if path is None or isinstance(path, str | os.PathLike) else path
        paths = [checkpoint.resolve_model_path(name) for name in names]
        if not paths:
            raise ValueError("no model to translate with")
        where = pick_device(device)
        loaded = [checkpoint.load(each, where) for each in paths]
        for other in loaded[1:]:
            if other.tokenizer.proto != loaded[0].tokenizer.proto:
                raise ValueError(
                    f"{other.path}: not the tokenizer of {loaded[0].path}: "
                    "an ensemble needs models of one vocabulary"
                )
            if other.config.get("languages") != loaded[0].config.get("languages"):
                raise ValueError(f"{other.path}: not the languages of {loaded[0].path}")
        return cls(
            [each.model for each in loaded],
            loaded[0].tokenizer,
            min(each.config["max_length"] for each in loaded),
            " + ".join(map(str, paths)),
            precision,
            default_workers(where) if workers is None else workers,
            load_search_defaults(paths[0]),
            [each.config for each in loaded],
        )

    def translate(
        self,
        sentences: Sequence[str],
        options: SearchOptions | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        split: bool = False,
        batch_size: int = 64,
        on_progress: Progress | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """One Translation for each line, in order.

        ``options`` say how to search, or single ``settings`` of SearchOptions by name, the others
        being the model's own. ``prefixes``, one a line, are how the translations begin. With
        ``split`` a line is as people type: it may hold several sentences, which are translated one
        by one, and one in capitals throughout is translated as if it were not, and in capitals
        again then. ``batch_size`` counts sentences; ``on_progress`` is called after each batch
        with the number of sentences in it (parts of long ones; blank ones cost nothing and are
        not counted).

        Raises ValueError on options that make no sense, TypeError on unknown ones.
        """
        options = replace(options or self.options, **settings)
        if isinstance(sentences, str):
            raise TypeError("translate wants a list of lines; for one text there is translate_text")
        check_batch_size(batch_size)
        texts = [sentence_splitter.sentences(line) if split else [line] for line in sentences]
        parts = list(itertools.chain.from_iterable(texts))
        shouted = [split and sentence_splitter.is_all_caps(text) for text in parts]
        quiet = [t.capitalize() if loud else t for t, loud in zip(parts, shouted, strict=True)]
        encoded = iter(zip(quiet, self.tokenizer.encode(quiet), shouted, strict=True))
        sources: list[list[int]] = []  # of every part of every line
        capitals: list[bool] = []  # whether it is in capitals throughout
        first: list[int] = []  # where each line's parts begin
        for texts_of_line in texts:
            first.append(len(sources))
            for text, ids, loud in itertools.islice(encoded, len(texts_of_line)):
                sources += self._split(ids, text)
                capitals += [loud] * (len(sources) - len(capitals))
        begin: list[list[int]] = [[] for _ in sources]
        if prefixes is not None:
            _check_lines(prefixes=prefixes)
            if len(prefixes) != len(sentences):
                raise ValueError(f"{len(prefixes)} prefixes for {len(sentences)} sentences")
            forced = self.tokenizer.encode_target(list(prefixes))
            for text in {text for text, ids in zip(prefixes, forced, strict=True) if UNK in ids}:
                log.warning(f"the prefix {text!r} is not in the vocabulary and will not come whole")
            for start, ids in zip(first, forced, strict=True):
                if start < len(begin):  # else a blank line, and the last
                    begin[start] = ids

        # The least risk is chosen among all hypotheses.
        wanted = replace(options, n_best=options.width) if options.mbr else options

        def find(batch: list[int]) -> list[list[Hypothesis]]:
            found = self.search([sources[i] for i in batch], wanted, [begin[i] for i in batch])
            return [self._by_risk(h, options) for h in found] if options.mbr else found

        lengths = [len(ids) + 1 for ids in sources]
        found = self._run(find, lengths, options.width, batch_size, on_progress)
        self._report_unlearned(
            max(len(ids), len(best[0].ids)) for ids, best in zip(sources, found, strict=True)
        )
        weights: Sequence[Tensor | None] = [None] * len(sources)
        if options.attention:
            outputs = [hypotheses[0].ids for hypotheses in found]
            weights = self._attention(sources, outputs, batch_size)
        bounds = itertools.pairwise([*first, len(sources)])
        return [
            self._join(
                line, sources[start:end], found[start:end], weights[start:end], capitals[start:end]
            )
            for line, (start, end) in zip(sentences, bounds, strict=True)
        ]

    def search(
        self, sources: list[list[int]], options: SearchOptions, begin: list[list[int]]
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each source, best first, which begin with the ids of ``begin``."""
        return search(self.model, self._pad(sources), options, begin)

    def translate_text(self, text: str, **arguments: Any) -> str:
        """A text of any length, sentence by sentence, with its line breaks where they were."""
        lines = re.split(r"(\r?\n)", text)  # every second one is a line break
        lines[::2] = [result.text for result in self.translate(lines[::2], split=True, **arguments)]
        return "".join(lines)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        alpha: float | None = None,
        batch_size: int = 64,
        on_progress: Progress | None = None,
    ) -> list[Translation]:
        """What the model says of given translations: ``score``, and log P by piece in ``parts``.

        A pair is scored as a whole, however long; without ``alpha`` with the model's own. Raises
        ValueError for unequal numbers.
        """
        alpha = self.options.alpha if alpha is None else alpha
        check_batch_size(batch_size)
        _check_lines(sources=sources, targets=targets)
        if len(sources) != len(targets):
            raise ValueError(f"{len(sources)} sources and {len(targets)} targets: not pairs")
        inputs = self.tokenizer.encode(list(sources))
        outputs = self.tokenizer.encode_target(list(targets))
        longest = max((len(ids) for ids in inputs + outputs), default=0)
        if longest > self.max_length:
            log.warning(
                f"a line of {longest} tokens is scored, longer than the {self.max_length} that "
                "the model was trained on: do not trust it"
            )

        def find(batch: list[int]) -> list[list[Hypothesis]]:
            src = self._pad([inputs[i] for i in batch])
            return [[h] for h in score(self.model, src, [outputs[i] for i in batch], alpha)]

        lengths = [max(len(a), len(b)) + 1 for a, b in zip(inputs, outputs, strict=True)]
        self._report_unlearned(length - 1 for length in lengths)
        found = self._run(find, lengths, 1, batch_size, on_progress)
        return [
            replace(
                self._join(source, [ids], [best], [None], [False]),
                text=target,
                n_best=((target, best[0].score),),
            )
            for source, target, ids, best in zip(sources, targets, inputs, found, strict=True)
        ]

    def _split(self, ids: list[int], text: str) -> list[list[int]]:
        """No part for a blank text, one for most, several for one beyond ``max_length``."""
        if len(ids) <= self.max_length:
            return [ids] if ids else []
        ends = sentence_splitter.split_points(self.tokenizer.pieces(ids), self.max_length)
        log.warning(
            f"a line of {len(ids)} tokens, {text.strip()[:30]!r}..., is longer than the "
            f"{self.max_length} that the model was trained on: translated in {len(ends)} parts"
        )
        return [ids[start:end] for start, end in itertools.pairwise([0, *ends])]

    def _report_unlearned(self, lengths: Iterable[int]) -> None:
        """A warning that counts what goes beyond the positions that a model has learned."""
        learned = [len(each.learned) for each in self.decoders if each.learned is not None]
        beyond = sum(length >= min(learned) for length in lengths) if learned else 0  # bos or eos
        if beyond:
            log.warning(
                f"{beyond:,} sentence(s) of the input or output go beyond the {min(learned)} "
                "positions that the model has learned: do not trust what is behind them"
            )

    def _pad(self, sources: list[list[int]]) -> Tensor:
        return pad([[*ids, EOS] for ids in sources]).to(self.decoders[0].device)

    def _run(
        self,
        find: Callable[[list[int]], list[Result]],
        lengths: list[int],
        width: int,
        batch_size: int,
        on_progress: Progress | None,
    ) -> list[Result]:
        """What ``find`` gives for every source, computed with those of like length together."""
        found: list[Any] = [None] * len(lengths)
        workers = min(self.workers, math.ceil(len(lengths) / LEAST))
        if workers > 1 and self.exact:  # else results would change
            batch_size = min(batch_size, math.ceil(len(lengths) / workers))
        batches = list(_batches(lengths, width, batch_size))

        def take(results: Iterator[list[Result]]) -> None:
            for batch, those in zip(batches, results, strict=True):
                for i, each in zip(batch, those, strict=True):
                    found[i] = each
                if on_progress is not None:
                    on_progress(len(batch))

        if workers < 2:
            take(map(find, batches))
            return found
        threads = torch.get_num_threads()
        share = max(1, threads // workers)
        try:
            with ThreadPoolExecutor(workers, "mt", torch.set_num_threads, (share,)) as pool:
                try:
                    take(pool.map(find, batches))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        finally:
            torch.set_num_threads(threads)  # also of threads that are yet to begin
        return found

    def _by_risk(self, found: list[Hypothesis], options: SearchOptions) -> list[Hypothesis]:
        """Hypotheses by expected chrF, best first: minimum Bayes risk (Kumar and Byrne 2004).

        The expectation is over the samples as they were drawn, or over an n-best list with the
        probabilities that the model gives to its members.
        """
        from mt.evaluation.metrics import (
            pairwise_chrf,  # sacrebleu: not for a prompt that does not need it
        )

        texts = self._texts([hypothesis.ids for hypothesis in found])
        log_probs = np.array([hypothesis.log_prob for hypothesis in found])
        weights = np.ones(len(found)) if options.samples else np.exp(log_probs - log_probs.max())
        expected = pairwise_chrf(texts) @ (weights / weights.sum())
        order = np.argsort(-expected, kind="stable")[: options.n_best]
        return [found[i] for i in order]

    def _join(
        self,
        line: str,
        sources: list[list[int]],
        found: list[list[Hypothesis]],
        weights: Sequence[Tensor | None],
        capitals: Sequence[bool],
    ) -> Translation:
        if not sources:
            return Translation(line, "", 0.0, 0, (("", 0.0),))
        ranks = range(min(map(len, found)))
        n_best = tuple(
            (
                self._text([part[rank].ids for part in found], capitals),
                sum(part[rank].score for part in found) / len(found),
            )
            for rank in ranks
        )
        parts = tuple(
            Segment(
                tuple(self.tokenizer.pieces(ids)),
                tuple(self.tokenizer.pieces(part[0].ids)),
                part[0].token_log_probs,
                attention,
            )
            for ids, part, attention in zip(sources, found, weights, strict=True)
        )
        if any(math.isnan(part[0].score) for part in found):
            log.warning(f"the model's logits are not numbers: no translation of {line[:30]!r}")
        tokens = sum(len(part[0].ids) + 1 for part in found)
        return Translation(line, n_best[0][0], n_best[0][1], tokens, n_best, parts)

    def _attention(
        self, sources: list[list[int]], outputs: list[list[int]], batch_size: int
    ) -> list[Tensor]:
        """[N, h, T, S] for each source and its output, of the first model of an ensemble."""

        @torch.inference_mode()  # which is a thread's own, so not around _run
        def look(batch: list[int]) -> list[Tensor]:
            src = self._pad([sources[i] for i in batch])
            return self.decoders[0].attention(src, [outputs[i] for i in batch], BOS)

        lengths = [max(len(a), len(b)) + 1 for a, b in zip(sources, outputs, strict=True)]
        return self._run(look, lengths, 1, batch_size, None)

    def _text(self, ids: list[list[int]], capitals: Sequence[bool]) -> str:
        texts = zip(self._texts(ids), capitals, strict=True)
        return " ".join(text.upper() if loud else text for text, loud in texts)

    def _texts(self, ids: list[list[int]]) -> list[str]:
        # One line in, one line out: a line break that the vocabulary may hold becomes a blank.
        return [" ".join(text.split()) for text in self.tokenizer.decode(ids)]


def _batches(lengths: list[int], width: int, batch_size: int) -> Iterator[list[int]]:
    """Numbers of sources, longest first, as many together as fit."""
    if lengths:
        sizes = np.array(lengths)
        order = np.argsort(-sizes, kind="stable")
        ends = token_budget_splits(sizes[order][:, None], max(1, MAX_TOKENS // width), batch_size)
        for batch in np.split(order, ends[:-1]):
            yield batch.tolist()


def check_batch_size(batch_size: object) -> None:
    _check_count("batch_size", batch_size)


def check_workers(workers: int) -> int:
    _check_count("workers", workers)
    return workers


def _check_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}: must be a whole number of at least 1")


def _check_lines(**lists: object) -> None:
    for name, lines in lists.items():
        if isinstance(lines, str) or not isinstance(lines, Sequence):
            raise TypeError(f"{name}: must be a list of lines, not {type(lines).__name__}")


def default_workers(device: torch.device) -> int:
    """One for each of torch's threads on the CPU; a GPU is kept busy by one."""
    return torch.get_num_threads() if device.type == "cpu" else 1


def pick_device(name: str) -> torch.device:
    """``auto`` is the GPU when there is one. Raises ValueError for a device that is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device).cpu()  # which `meta` cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).split("\n")[0]
        raise ValueError(f"device {name!r} cannot be used here: {reason}") from None
    return device
