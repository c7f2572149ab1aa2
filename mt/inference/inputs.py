"""What the model translates at once: the inputs of each line."""

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from mt.data.special_ids import UNK
from mt.data.tokenizer import Tokenizer
from mt.inference import sentence_splitter
from mt.inference.constraints import Constraints
from mt.inference.glossary import Glossary
from mt.inference.options import MAX_LENGTH
from mt.inference.terms import SearchTerms, TermEncoder, TermRules, Terms
from mt.inference.typed_text import tidy

log = logging.getLogger(__name__)

CHUNK = 2**16  # characters; SentencePiece takes 200 bytes and more for each one of a long word
LONG_PIECE = 16  # characters; SentencePiece learns no longer one unless it is asked to


class Input(NamedTuple):
    """A line, a sentence of it, or a clause of a sentence too long."""

    ids: list[int]  # without eos
    all_caps: bool  # the text is in capitals; the ids are those of its lower-case form
    prefix: list[int]  # ids with which the output must begin
    text: str = ""
    terms: SearchTerms | None = None
    before: str = ""  # what stands before it in the line, and before its translation
    apart: tuple[int, ...] = ()  # words of the text after which a mark stands apart in the line
    attempt: int = 0  # how often it was searched before, without or with its terms

    @property
    def constraints(self) -> Constraints | None:
        """What the search of this attempt must keep."""
        return None if self.terms is None or self.comes_by_itself else self.terms.constraints

    @property
    def comes_by_itself(self) -> bool:
        """Whether the search runs without the terms: mostly the model copies what is kept."""
        return self.terms is not None and self.terms.are_kept and self.attempt == 0


def split_lines(text: str) -> tuple[list[str], tuple[str, ...]]:
    """The lines of a text, and the line breaks between them."""
    parts = re.split(r"(\r\n|\n|\r)", text)
    return parts[::2], tuple(parts[1::2])


def strings(name: str, lines: object) -> list[str]:
    """The lines of any iterable. TypeError when it is not one of strings."""
    if isinstance(lines, str | bytes) or not isinstance(lines, Iterable):
        raise TypeError(f"{name}: must be a list of lines, not {type(lines).__name__}")
    lines = list(lines)
    for i, line in enumerate(lines):
        if not isinstance(line, str):
            raise TypeError(f"{name}[{i}] is {type(line).__name__}: must be a string")
    return lines


def as_written(sentence: str) -> str:
    """A sentence as people type it, as the model reads it with ``split``."""
    text, _ = tidy(sentence)
    return text.capitalize() if sentence_splitter.is_all_caps(text) else text


def plan_inputs(
    lines: list[str],
    tokenizer: Tokenizer,
    max_length: int,
    split: bool,
    prefixes: Sequence[str] = (),
) -> list[list[Input]]:
    """The inputs of each line: none if it is blank, several if it is long or has sentences.

    An input has at most ``max_length`` ids. With ``split`` a line is split into its sentences; its
    layout stands outside of them, unless the line has a prefix with which it must begin.
    """
    rows = [
        (n, before, *(tidy(text) if split else (text, ())))
        for n, line in enumerate(lines)
        for before, text in _rows(line, split, any(prefixes[n : n + 1]))
    ]
    all_caps = [split and sentence_splitter.is_all_caps(text) for _, _, text, _ in rows]
    texts = [
        text.capitalize() if caps else text
        for (_, _, text, _), caps in zip(rows, all_caps, strict=True)
    ]
    encoded = encode_chunks(tokenizer.encode, texts, LONG_PIECE * max_length)
    inputs: list[list[Input]] = [[] for _ in lines]
    for (n, before, text, apart), caps, chunks in zip(rows, all_caps, encoded, strict=True):
        parts = [part for ids in chunks for part in _parts(ids, tokenizer, max_length)]
        if len(parts) > 1:
            log.warning(
                f"a line of {sum(map(len, parts))} tokens, {text.strip()[:30]!r}..., is longer "
                f"than the {max_length} that the model was trained on: translated in "
                f"{len(parts):,} parts"
            )
        part_texts = [text] if len(parts) == 1 else tokenizer.decode(parts)
        befores = [before, *[" "] * len(parts)]
        aparts = [apart, *[()] * len(parts)]  # words are counted on through the parts
        rows_of_parts = zip(parts, part_texts, befores, aparts, strict=False)
        inputs[n] += [
            Input(ids, caps, [], part_text, before=part_before, apart=part_apart)
            for ids, part_text, part_before, part_apart in rows_of_parts
        ]
    return inputs


def _rows(line: str, split: bool, has_prefix: bool) -> list[tuple[str, str]]:
    if not split:
        return [("", line)]
    if has_prefix:
        sentences = sentence_splitter.sentences(line)
        return [(" " if n else "", sentence) for n, sentence in enumerate(sentences)]
    return sentence_splitter.sentences_of_line(line)


def encode_chunks(
    encode: Callable[[list[str]], list[list[int]]], texts: list[str], least: int = 0
) -> list[list[list[int]]]:
    """The ids of each text, in several lists where it has more characters than CHUNK and ``least``.

    So memory does not grow with the longest text.
    """
    chunks = [sentence_splitter.chunks(text, max(CHUNK, least)) for text in texts]
    encoded = iter(encode(list(itertools.chain.from_iterable(chunks))))
    return [list(itertools.islice(encoded, len(text_chunks))) for text_chunks in chunks]


def encode_pairs(
    sources: list[str], targets: list[str], tokenizer: Tokenizer, max_length: int
) -> tuple[list[list[int]], list[list[int]]]:
    """The ids of the whole lines of pairs; it warns of those longer than ``max_length``.

    Raises ValueError if the numbers differ, or if a line has more than MAX_LENGTH tokens.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources and {len(targets)} targets: not pairs")
    source_ids, target_ids = (
        [list(itertools.chain.from_iterable(chunks)) for chunks in encode_chunks(encode, texts)]
        for encode, texts in ((tokenizer.encode, sources), (tokenizer.encode_target, targets))
    )
    longest = max((len(ids) for ids in source_ids + target_ids), default=0)
    if longest > MAX_LENGTH:
        raise ValueError(f"a line of {longest:,} tokens: at most {MAX_LENGTH:,} can be scored")
    if longest > max_length:
        log.warning(
            f"a line of {longest} tokens is scored, longer than the {max_length} that "
            "the model was trained on: do not trust it"
        )
    return source_ids, target_ids


def _parts(ids: list[int], tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """No part for a blank text, several for one beyond ``max_length``, else the ids."""
    if len(ids) <= max_length:
        return [ids] if ids else []
    ends = sentence_splitter.split_points(tokenizer.pieces(ids), max_length)
    return [ids[start:end] for start, end in itertools.pairwise([0, *ends])]


def add_prefixes(inputs: list[list[Input]], prefixes: list[str], tokenizer: Tokenizer) -> None:
    """Give each line's prefix to the first of its inputs.

    Raises ValueError unless there is one for each line.
    """
    if len(prefixes) != len(inputs):
        raise ValueError(f"{len(prefixes)} prefixes for {len(inputs)} sentences")
    encoded = tokenizer.encode_target(prefixes)
    for text in {text for text, ids in zip(prefixes, encoded, strict=True) if UNK in ids}:
        log.warning(f"the vocabulary cannot spell the prefix {text!r}: it will not come whole")
    for line_inputs, ids in zip(inputs, encoded, strict=True):
        line_inputs[:1] = [first._replace(prefix=ids) for first in line_inputs[:1]]


def add_terms(
    inputs: list[list[Input]], terms: TermRules | Sequence[Terms], encoder: TermEncoder
) -> None:
    """Give each input the terms that the rules find in it, or those of its line.

    A line that the rules leave as it is has no input then, unless it must begin with a prefix.
    Raises ValueError unless there are terms for each line, and when a line with terms of its own
    is translated in parts; TypeError for what is neither rules nor terms.
    """
    if isinstance(terms, TermRules):
        for line_inputs in inputs:
            input_terms = [terms.of(x.text) for x in line_inputs]
            has_prefix = any(x.prefix for x in line_inputs)
            if all(x_terms.is_whole_text for x_terms in input_terms) and not has_prefix:
                line_inputs.clear()
                continue
            pairs = zip(line_inputs, input_terms, strict=True)
            line_inputs[:] = [x._replace(terms=encoder.encode(x_terms)) for x, x_terms in pairs]
        return
    is_list = isinstance(terms, Sequence) and not isinstance(terms, Glossary)
    if not is_list or not all(isinstance(x, Terms) for x in terms):
        raise TypeError(
            "terms: must be TermRules, which may have a Glossary, or Terms for each line"
        )
    if len(terms) != len(inputs):
        raise ValueError(f"terms of {len(terms)} lines for {len(inputs)} sentences")
    for line_inputs, line_terms in zip(inputs, terms, strict=True):
        if line_terms.required and len(line_inputs) > 1:
            start = line_inputs[0].text[:30]
            raise ValueError(
                f"{start!r}...: has {len(line_inputs)} sentences: give each its own line"
            )
        line_inputs[:] = [x._replace(terms=encoder.encode(line_terms)) for x in line_inputs]
