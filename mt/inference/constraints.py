"""Lexical constraints: terms that a translation must have, and phrases that it must not have.

Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation": the beam is
divided among hypotheses that have met different numbers of terms, so that those which have paid for
an unlikely term do not lose to those which have not. Hu et al. 2019 follow many terms at once in a
trie; here it has failure links (Aho and Corasick 1975), so that a phrase may begin inside another.

A term has several forms, such as the cases of a German noun, one of which must come as whole words.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from mt.data.special_ids import EOS, SPECIAL_IDS
from mt.data.tokenizer import Tokenizer

Form = tuple[int, ...]  # ids
BYTE = re.compile("<0x[0-9A-F]{2}>")


class Vocabulary:
    """How the pieces of a vocabulary are written, and which of them end the word before them."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.texts = ["\ufffd" if BYTE.fullmatch(p) else p.replace("▁", " ") for p in pieces]
        for i in SPECIAL_IDS:
            self.texts[i] = ""
        self.ends_word = np.array([not text[:1].isalnum() for text in self.texts])
        self.in_word = [text[-1:].isalnum() for text in self.texts]
        # Those in which a word ends: the others end one only at their beginning.
        inside = [re.search(r"\w\W", text) for text in self.texts]
        self.with_word_end = [i for i, match in enumerate(inside) if match]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Vocabulary":
        return cls(tokenizer.pieces(list(range(tokenizer.vocab_size))))


class State(NamedTuple):
    """How far a hypothesis is."""

    met: int  # bit i: it has term i
    node: int  # of the trie: the longest beginning of a form with which it ends
    in_word: bool  # it ends with a letter or digit
    is_bound: bool  # it must go on with the form that it has begun
    text: str  # the end of what it says, if there are forbidden phrases


class Place(NamedTuple):
    """Where one of the terms stands in an output: ``ids[start:end]`` is form ``form`` of it."""

    term: int
    form: int
    start: int
    end: int


class Constraints:
    """What one translation must have and must not have.

    ``terms`` are the forms of each term; a term that is needed twice is there twice.
    ``forbidden`` are texts, which must not come as whole words. ValueError for an empty one.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        terms: Sequence[Sequence[Sequence[int]]] = (),
        forbidden: Sequence[str] = (),
    ) -> None:
        self.vocabulary = vocabulary
        self.terms = [[tuple(form) for form in forms] for forms in terms]
        if not all(forms and all(forms) for forms in self.terms):
            raise ValueError("a term must have a form, and a form a piece")
        if not all(phrase.strip() for phrase in forbidden):
            raise ValueError("a forbidden phrase must not be blank")
        self._all = (1 << len(self.terms)) - 1
        # Of the forms that may come after a word, if there are such
        after_word = [[f for f in fs if vocabulary.ends_word[f[0]]] for fs in self.terms]
        self._shortest = [
            min(map(len, own or forms)) for own, forms in zip(after_word, self.terms, strict=True)
        ]
        self._build_trie()
        words = "|".join(re.escape(" ".join(phrase.split())) for phrase in forbidden)
        self._forbidden = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if forbidden else None
        self._longest_text = max(map(len, forbidden), default=0) + 1
        self.start = State(0, 0, False, False, "")
        self.remaining = lru_cache(maxsize=None)(self._remaining)

    def _build_trie(self) -> None:
        self._children: list[dict[int, int]] = [{}]
        self.depths = depths = [0]  # of each node: the tokens of the form that there are
        own: list[list[tuple[int, int]]] = [[]]  # of a node: (term, tokens left of a form)
        for term, forms in enumerate(self.terms):
            for form in forms:
                node = 0
                for depth, token in enumerate(form, 1):
                    if token not in self._children[node]:
                        self._children[node][token] = len(depths)
                        self._children.append({})
                        depths.append(depth)
                        own.append([])
                    node = self._children[node][token]
                    own[node].append((term, len(form) - depth))
        self._first = set(self._children[0].values())
        self._failure = [0] * len(depths)
        self._begun = own  # of a node: the forms of which the hypothesis has a beginning
        for node in sorted(range(len(depths)), key=depths.__getitem__):
            for token, child in self._children[node].items():
                self._failure[child] = self._follow(self._failure[node], token) if node else 0
                # The longest form comes first: the end of the hypothesis is that of one term.
                self._begun[child] = [*own[child], *self._begun[self._failure[child]]]

    def _follow(self, node: int, token: int) -> int:
        while node and token not in self._children[node]:
            node = self._failure[node]
        return self._children[node].get(token, 0)

    def _is_met(self, met: int, term: int) -> bool:
        return bool(met >> term & 1)

    def _ended(self, met: int, node: int) -> int | None:
        """The term that the hypothesis has if a word ends here."""
        ended = (term for term, left in self._begun[node] if left == 0)
        return next((term for term in ended if not self._is_met(met, term)), None)

    def _remaining(self, met: int, node: int) -> int:
        """The fewest tokens after which all terms can be there."""
        unmet = [n for term, n in enumerate(self._shortest) if not self._is_met(met, term)]
        saved = (
            self._shortest[term] - left
            for term, left in self._begun[node]
            if not self._is_met(met, term)
        )
        return sum(unmet) - max(0, max(saved, default=0))

    # What the search asks for

    def advance(self, state: State, token: int, would_end: bool = False) -> State:
        """The state after one more token; eos is one.

        ``would_end``: eos was the likeliest token, as in ``banned_tokens``.
        """
        met = state.met
        if self.vocabulary.ends_word[token]:
            term = self._ended(met, state.node)
            met |= 0 if term is None else 1 << term
        text = ""
        if self._forbidden is not None:
            text = (state.text + self.vocabulary.texts[token])[-self._longest_text :]
        node = self._follow(state.node, token)
        if node in self._first and self._continues_word(state, token):
            node = 0
        is_bound = would_end or state.is_bound
        if is_bound:
            left = [left for term, left in self._begun[node] if not self._is_met(met, term)]
            is_bound = bool(left) and min(left) > 0
        return State(met, node, self.vocabulary.in_word[token], is_bound, text)

    def _continues_word(self, state: State, token: int) -> bool:
        return state.in_word and not self.vocabulary.ends_word[token]

    def is_satisfied(self, state: State) -> bool:
        """Whether the output may end here."""
        return self.advance(state, EOS).met == self._all

    def bank(self, state: State) -> tuple[int, bool]:
        """Hypotheses of one bank compete for a share of the beam: how much of the terms is there.

        The terms that are met, one that may end here included, and whether one has begun.
        """
        met = self.advance(state, EOS).met
        begun = any(not self._is_met(met, term) for term, _ in self._begun[state.node])
        return met.bit_count(), begun

    def next_tokens(self, state: State) -> list[int]:
        """The tokens that begin a form of a term that is not met, or go on with it."""
        tokens = []
        node = state.node
        while True:
            for token, child in self._children[node].items():
                if any(not self._is_met(state.met, term) for term, _ in self._begun[child]):
                    tokens.append(token)
            if not node:
                kept = dict.fromkeys(tokens)
                return [t for t in kept if self.advance(state, t).node]
            node = self._failure[node]

    def _going_on(self, state: State) -> list[int]:
        """The tokens that go on with the longest form that has begun."""
        children = self._children[state.node].items()
        return [
            token for token, child in children
            if any(not self._is_met(state.met, term) for term, _ in self._begun[child])
        ]  # fmt: skip

    def may_end_a_term(self, state: State) -> bool:
        """Whether a term is met if a word ends here."""
        return self._ended(state.met, state.node) is not None

    def banned_tokens(self, state: State, left: int, would_end: bool) -> np.ndarray:
        """[V] booleans: the tokens that must not come next; after this one come ``left`` - 1.

        ``would_end``: eos is the likeliest token. Then a hypothesis that lacks a term goes on with
        it, to its end: otherwise it would ramble until the term is not so unlikely any more.
        """
        banned = np.zeros(len(self.vocabulary.texts), dtype=bool)
        if self._forbidden is not None:
            banned |= self._forbidden_tokens(state, is_last=left == 1)
        if not self.is_satisfied(state):
            banned[EOS] = True
            if would_end or state.is_bound:
                required = self._going_on(state) if state.is_bound else self.next_tokens(state)
                banned |= ~np.isin(np.arange(len(banned)), required)
        if self.remaining(state.met, 0) >= left:  # not every token leaves time for the terms
            in_time = np.zeros_like(banned)
            met = self.advance(state, EOS).met
            if met != state.met and self.remaining(met, 0) < left:
                in_time |= self.vocabulary.ends_word
            for token in self.next_tokens(state):
                after = self.advance(state, token)
                in_time[token] |= self.remaining(after.met, after.node) < left
            banned |= ~in_time
        return banned

    def _forbidden_tokens(self, state: State, is_last: bool) -> np.ndarray:
        """The tokens after which a forbidden phrase stands there as whole words."""
        assert self._forbidden is not None
        texts = self.vocabulary.texts
        ends = [match.end() for match in self._forbidden.finditer(state.text)]
        banned = self.vocabulary.ends_word & (ends[-1:] == [len(state.text)])
        for token in range(len(texts)) if is_last else self.vocabulary.with_word_end:
            whole = state.text + texts[token]
            found = self._forbidden.finditer(whole)
            if any(len(state.text) < match.end() < len(whole) + is_last for match in found):
                banned[token] = True
        return banned

    @property
    def fewest_tokens(self) -> int:
        return sum(self._shortest)

    def places(self, ids: Sequence[int]) -> list[Place]:
        """Where the terms that are met stand in an output, ids without eos."""
        state, places = self.start, []
        for end, token in enumerate([*ids, EOS]):
            after = self.advance(state, token)
            if after.met != state.met:
                term = (after.met ^ state.met).bit_length() - 1
                lengths = [
                    (len(form), number)
                    for number, form in enumerate(self.terms[term])
                    if tuple(ids[max(0, end - len(form)) : end]) == form
                ]
                length, number = max(lengths)
                places.append(Place(term, number, end - length, end))
            state = after
        return places
