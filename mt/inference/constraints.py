"""Lexical constraints: terms that a translation must have, and phrases that it must not have.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation": the beam is
divided among hypotheses that have met different numbers of terms, so that those which have paid for
an unlikely term do not lose to those which have not. Hu et al. 2019 follow many terms at once in a
trie; here it has failure links (Aho and Corasick 1975), so that a phrase may begin inside another.

A term has several forms, such as the cases of a German noun. One of them must come as whole words.
"""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mt.data.special_ids import EOS, SPECIAL_IDS
from mt.data.tokenizer import Tokenizer
from mt.inference.forbidden import ForbiddenPhrases, TokenTexts

BYTE = re.compile("<0x[0-9A-F]{2}>")
# Between letters or digits these belong to the word: 3.5, 8:15, x-ray, https://example.org/a?b=1
JOINERS = frozenset(".,:;/-_'’@&=?#%+~")


class Vocabulary:
    """How the pieces of a vocabulary are written, and which of them end the word before them."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.texts = [_spelled(piece) for piece in pieces]
        for i in SPECIAL_IDS:
            self.texts[i] = ""
        self.ends_word = np.array([not text[:1].isalnum() for text in self.texts])
        self.begins_blank = [text[:1] == " " for text in self.texts]
        self.in_word = [text[-1:].isalnum() for text in self.texts]
        self.joins = [text in JOINERS for text in self.texts]
        self.begins_letter = [text[:1].isalpha() for text in self.texts]
        # Tokens alike in all four are told by a number that is no token.
        alike = zip(
            self.begins_letter, self.ends_word.tolist(), self.in_word, self.joins, strict=True
        )
        self.kinds = [-1 - sum(2**i * flag for i, flag in enumerate(flags)) for flags in alike]

    @cached_property
    def token_texts(self) -> TokenTexts:
        """Only forbidden phrases need them, and making them takes a moment."""
        return TokenTexts(self.texts)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        return cls(tokenizer.all_pieces())


def _spelled(piece: str) -> str:
    """How a piece is written; a byte of a longer character as U+FFFD."""
    if not BYTE.fullmatch(piece):
        return piece.replace("▁", " ")
    code = int(piece[1:-1], 16)
    return chr(code) if code < 0x80 else "\ufffd"


class ConstraintState:
    """How far a hypothesis is with the terms: a state of an automaton that is built in use.

    ``settled`` has bit i if term i is there, ``met`` also has one that a word's end would complete.
    """

    def __init__(
        self,
        constraints: "Constraints",
        met: int,
        held: int,
        node: int,
        in_word: bool,
        is_bound: bool,
    ) -> None:
        self.in_word = in_word  # it ends within a word
        self.is_bound = is_bound  # it must go on with what has begun
        self._constraints, self.settled, self.node = constraints, met, node
        ended = constraints.ended(met, node)
        # The term that is met if a word ends here; a joiner may stand after it.
        self._ended = held if ended is None else 1 << ended
        self.may_end_term = self._ended > 0
        # A form that ends in a hyphen is there if a letter follows: 5-jährig, but not 5-10.
        self._is_prefix = ended is not None and constraints.ends_in_hyphen[node]
        self.met = met | self._ended
        self.is_complete = self.met == constraints.all_terms
        # A term has begun that is not met.
        self.has_begun = any(not self.met >> term & 1 for term, _ in constraints.begun(node))
        self.depth = constraints.depths[node]  # tokens of the longest form that has begun
        self.remaining = constraints.remaining(met, node)
        self.remaining_anew = constraints.remaining(met, 0)
        self.remaining_after_word = constraints.remaining(self.met, 0)
        self._after: dict[tuple[int, bool], ConstraintState] = {}

    def advance(self, token: int, would_end: bool = False) -> "ConstraintState":
        """The state after one more token. ``would_end``: eos was the likeliest one."""
        constraints, vocabulary = self._constraints, self._constraints.vocabulary
        # All tokens that no form has and that are alike to the vocabulary lead to one state.
        key = (token if token in constraints.tokens else vocabulary.kinds[token], would_end)
        after = self._after.get(key)
        if after is None:
            ends_word = vocabulary.ends_word[token]
            joins = self.in_word and vocabulary.joins[token]
            in_word = vocabulary.in_word[token] or joins
            goes_on = self._is_prefix and vocabulary.begins_letter[token]
            met = self.met if (ends_word and not joins) or goes_on else self.settled
            # What belongs to a term that has ended does not begin another one.
            goes_on = met == self.settled or token in constraints.children[self.node]
            node = constraints.follow(self.node if goes_on else 0, token)
            if constraints.depths[node] == 1 and self.in_word and not constraints.after_word(token):
                node = 0  # no term begins in the middle of a word, or right after it
            is_bound = would_end or self.is_bound
            if is_bound:
                missing = [n for term, n in constraints.begun(node) if not met >> term & 1]
                is_bound = bool(missing) and min(missing) > 0
            after = self._after[key] = constraints.state(
                met, self._ended if joins else 0, node, in_word, is_bound
            )
        return after

    @cached_property
    def next_tokens(self) -> list[int]:
        """The tokens that begin a form of a term that is not met, or go on with it."""
        tokens: dict[int, None] = {}
        node = self.node
        while True:
            tokens |= dict.fromkeys(self._continuing_tokens(node))
            if not node:
                return [token for token in tokens if self.advance(token).node]
            node = self._constraints.failure[node]

    @cached_property
    def bound_tokens(self) -> list[int]:
        """The tokens that go on with the longest form that has begun."""
        return self._continuing_tokens(self.node)

    def _continuing_tokens(self, node: int) -> list[int]:
        children, begun = self._constraints.children[node], self._constraints.begun
        return [
            token
            for token, child in children.items()
            if any(not self.settled >> term & 1 for term, _ in begun(child))
        ]


class TermPlace(NamedTuple):
    """Where one of the terms stands in an output: ``ids[start:end]`` is form ``form`` of it."""

    term: int
    form: int
    start: int
    end: int


class Constraints:
    """What one translation must have and must not have.

    ``terms`` are the forms of each term; a term that is needed twice is there twice. Those whose
    numbers are in ``attached`` may stand right after a word, without a blank. ``forbidden`` are
    texts, which must not come as whole words. ValueError for an empty one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        terms: Sequence[Sequence[Sequence[int]]] = (),
        forbidden: Sequence[str] = (),
        attached: Iterable[int] = (),
    ) -> None:
        self.vocabulary = vocabulary
        self.terms = [[tuple(form) for form in forms] for forms in terms]
        if not all(forms and all(forms) for forms in self.terms):
            raise ValueError("a term must have a form, and a form a piece")
        self.all_terms = (1 << len(self.terms)) - 1
        self._attached = {form[0] for term in attached for form in self.terms[term]}
        # Of the forms that may come after a word, if there are such
        after_word = [[form for form in forms if self.after_word(form[0])] for forms in self.terms]
        self._shortest = [
            min(map(len, forms_after_word or forms))
            for forms_after_word, forms in zip(after_word, self.terms, strict=True)
        ]
        self._build_trie()
        self._states: dict[tuple[int, int, int, bool, bool], ConstraintState] = {}
        self.start = self.state(0, 0, 0, False, False)
        # What ``with_place`` adds
        self.begin: tuple[int, int] | None = None  # a term, and the length after which it begins
        self.is_glued = False  # to what is before it, such as a quotation mark
        self.banned: tuple[tuple[int, ...], ...] = ()
        self._forbidden = ForbiddenPhrases(vocabulary.token_texts, forbidden) if forbidden else None

    def with_place(
        self, term: int, position: int, word: tuple[int, ...], is_glued: bool = False
    ) -> "Constraints":
        """The same, but ``term`` begins at ``position`` of the output, and ``word`` is banned.

        ``is_glued``: without a blank, as after a quotation mark.
        """
        placed = copy.copy(self)
        placed.begin, placed.is_glued = (term, position), is_glued
        of_terms = (
            form[i : i + len(word)] for fs in self.terms for form in fs for i in range(len(form))
        )
        if word not in of_terms:
            placed.banned = (*self.banned, word)
        return placed

    def after_word(self, token: int) -> bool:
        """Whether a form may begin with the token where a letter or a digit comes before it.

        It begins with a blank then, unless it is attached in the source too.
        """
        words = self.vocabulary
        attached = token in self._attached and bool(words.ends_word[token])
        return words.begins_blank[token] or attached

    def first_tokens(self, term: int) -> list[int]:
        """The tokens with which a form of the term may begin at its place."""
        tokens = [form[0] for form in self.terms[term]]
        glued = [token for token in tokens if not self.vocabulary.begins_blank[token]]
        return glued if self.is_glued and glued else [t for t in tokens if self.after_word(t)]

    def state(
        self, met: int, held: int, node: int, in_word: bool, is_bound: bool
    ) -> ConstraintState:
        """The state of the automaton, the same object for the same values."""
        key = met, held, node, in_word, is_bound
        if key not in self._states:
            self._states[key] = ConstraintState(self, *key)
        return self._states[key]

    def _build_trie(self) -> None:
        self.children: list[dict[int, int]] = [{}]
        self.depths = [0]  # of each node: the tokens of the forms that there are
        # Of a node: (term, tokens left of a form), and a form that has it
        self._own: list[list[tuple[int, int]]] = [[]]
        self.ends_in_hyphen = [False]  # the token that leads to it
        spelled: list[tuple[int, ...]] = [()]
        for term, forms in enumerate(self.terms):
            for form in forms:
                node = 0
                for depth, token in enumerate(form, 1):
                    if token not in self.children[node]:
                        self.children[node][token] = len(self.depths)
                        self.children.append({})
                        self.depths.append(depth)
                        self._own.append([])
                        self.ends_in_hyphen.append(self.vocabulary.texts[token].endswith("-"))
                        spelled.append(form)
                    node = self.children[node][token]
                    self._own[node].append((term, len(form) - depth))
        self.tokens = {token for children in self.children for token in children}
        self.failure = [0] * len(self.depths)
        for node in sorted(range(len(spelled)), key=self.depths.__getitem__):
            for token, child in self.children[node].items():
                form, depth = spelled[child], self.depths[child]
                suffix = self.follow(self.failure[node], token) if node else 0
                while suffix and self._begins_in_word(form, depth - self.depths[suffix]):
                    suffix = self.failure[suffix]
                self.failure[child] = suffix

    def _begins_in_word(self, form: Sequence[int], start: int) -> bool:
        """Whether ``form[start:]`` begins in the middle of a word of the form."""
        words = self.vocabulary
        joined = start > 1 and words.joins[form[start - 1]] and words.in_word[form[start - 2]]
        return not self.after_word(form[start]) and (words.in_word[form[start - 1]] or joined)

    def begun(self, node: int) -> Iterator[tuple[int, int]]:
        """The forms that the hypothesis has begun: (term, tokens left).

        The longest beginning comes first: the end of the hypothesis is that of one term.
        """
        while node:
            yield from self._own[node]
            node = self.failure[node]

    def follow(self, node: int, token: int) -> int:
        """The node after a token: the longest beginning of a form at the hypothesis's end."""
        while node and token not in self.children[node]:
            node = self.failure[node]
        return self.children[node].get(token, 0)

    def ended(self, met: int, node: int) -> int | None:
        """The term that the hypothesis has if a word ends here."""
        ended = (term for term, left in self.begun(node) if left == 0)
        return next((term for term in ended if not met >> term & 1), None)

    def remaining(self, met: int, node: int) -> int:
        """The fewest tokens after which all terms can be there."""
        unmet = [n for term, n in enumerate(self._shortest) if not met >> term & 1]
        begun = ((term, left) for term, left in self.begun(node) if not met >> term & 1)
        return sum(unmet) - max(0, max((self._shortest[t] - left for t, left in begun), default=0))

    def allowed_tokens(
        self, state: ConstraintState, left: int, would_end: bool
    ) -> np.ndarray | None:
        """The tokens that may come next, or None: any; after this one come ``left`` - 1.

        ``would_end``: eos is the likeliest token. Then a hypothesis that lacks a term goes on with
        it, to its end: otherwise it would ramble until the term is not so unlikely any more.
        """
        allowed = None
        if state.is_bound or (would_end and not state.is_complete):
            allowed = np.array(state.bound_tokens if state.is_bound else state.next_tokens)
        if state.remaining_anew >= left:  # not every token leaves time for the terms
            after = ((token, state.advance(token)) for token in state.next_tokens)
            in_time = {token for token, next_state in after if next_state.remaining < left}
            if state.may_end_term and state.remaining_after_word < left:
                in_time.update(np.flatnonzero(self.vocabulary.ends_word).tolist())
            if allowed is None:
                return np.array(sorted(in_time), dtype=np.int64)
            return np.array([token for token in allowed if token in in_time], dtype=np.int64)
        return allowed

    # Forbidden phrases

    @property
    def has_forbidden(self) -> bool:
        return self._forbidden is not None

    def extend_text(self, text: str, token: int) -> str:
        """The end of what a hypothesis says, as far as forbidden phrases may be in it."""
        assert self._forbidden is not None
        return (text + self.vocabulary.texts[token])[-self._forbidden.longest - 1 :]

    def forbidden_tokens(self, text: str, is_last: bool) -> np.ndarray:
        """[V] booleans: the tokens after which a forbidden phrase stands there as whole words.

        ``is_last``: the output ends after the token.
        """
        assert self._forbidden is not None
        return self._forbidden.tokens(text, is_last)

    @property
    def fewest_tokens(self) -> int:
        return sum(self._shortest)

    def fewest_after(self, ids: Sequence[int]) -> int:
        """The fewest tokens after these ids until all terms can be there."""
        state = self.start
        for token in ids:
            state = state.advance(token)
        return min(state.remaining, state.remaining_after_word)

    def places(self, ids: Sequence[int], goes_on: bool = False) -> list[TermPlace]:
        """Where the terms that are met stand in an output, ids without eos.

        Without those that may still become a part of a longer word, if the output ``goes_on``.
        """
        if not self.terms:
            return []
        state, places, met = self.start, [], 0
        for end, token in enumerate(ids if goes_on else [*ids, EOS]):
            after = state.advance(token)
            if after.settled != met:  # a term has ended here, or before a joiner
                term = (after.settled ^ met).bit_length() - 1
                met = after.settled
                places.append(self._place(term, ids, end))
            state = after
        return places

    def _place(self, term: int, ids: Sequence[int], end: int) -> TermPlace:
        """Where the term stands that ends before ``ids[end]``, or before joiners there."""
        for last in range(end, 0, -1):
            lengths = [
                (len(form), number)
                for number, form in enumerate(self.terms[term])
                if tuple(ids[max(0, last - len(form)) : last]) == form
            ]
            if lengths:
                length, number = max(lengths)
                return TermPlace(term, number, last - length, last)
        raise AssertionError("a term is met that does not stand there")
