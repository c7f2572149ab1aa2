"""What the terms of constrained sentences change in a step of the search.

Shapes: as in ``mt.inference.beam_search``.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mt.data.special_ids import EOS
from mt.inference.sentence_search import Candidate, ConstrainedSearch, SentenceSearch


class RequiredTokens:
    """The constrained sentences of a batch, and the tokens that bring them nearer to the end."""

    def __init__(self, sentences: list[tuple[int, ConstrainedSearch]]) -> None:
        self.sentences = sentences
        self._sentence = dict(sentences)
        self.places = [
            (b, row, token)
            for b, sentence in sentences
            for row, state in enumerate(sentence.states)
            for token in state.next_tokens
        ]
        self._index = tuple(np.array(self.places, dtype=np.int64).reshape(-1, 3).T)
        self._rows = [(b, row) for b, s in sentences for row in range(len(s.states))]

    @classmethod
    def of(cls, active: Sequence[SentenceSearch]) -> "RequiredTokens | None":
        """None if no sentence has constraints."""
        sentences = [(b, s) for b, s in enumerate(active) if isinstance(s, ConstrainedSearch)]
        return cls(sentences) if sentences else None

    def read(self, log_probs: Tensor) -> None:
        """Keep the log P of the required tokens before other options forbid some of them."""
        self._kept = log_probs[self._index]

    def constrain(self, log_probs: Tensor) -> None:
        """-inf in log P [B, w, V] for tokens with which the constraints cannot be kept.

        What is required overrides the other options.
        """
        log_probs[self._index] = self._kept
        b, rows = np.array(self._rows).T
        best = log_probs.amax(dim=2)
        ends = (log_probs[:, :, EOS] >= best)[b, rows].tolist()
        no_end = []
        for (b, row), would_end in zip(self._rows, ends, strict=True):
            sentence = self._sentence[b]
            begins = sentence.begins(row)
            sentence.would_end[row] = would_end or bool(begins)
            state, tokens_left = sentence.states[row], sentence.limit - sentence.length
            if not tokens_left:  # eos is forced
                continue
            if not state.is_complete:
                no_end.append((b, row))
            allowed = sentence.constraints.allowed_tokens(state, tokens_left, would_end)
            allowed = np.array(begins) if begins else allowed
            if allowed is not None:
                values = log_probs[b, row, allowed]
                log_probs[b, row] = -torch.inf
                log_probs[b, row, allowed] = values
            for token in sentence.banned_tokens(row):
                log_probs[b, row, token] = -torch.inf
            if sentence.constraints.has_forbidden:
                banned = sentence.constraints.forbidden_tokens(
                    sentence.texts[row], tokens_left == 1
                )
                log_probs[b, row, torch.from_numpy(banned).to(log_probs.device)] = -torch.inf
        if no_end:
            log_probs[(*np.array(no_end).T, EOS)] = -torch.inf

    def add_to(
        self, candidates: list[list[Candidate]], log_probs: Tensor, best: np.ndarray
    ) -> list[list[Candidate]]:
        """The candidates and those that bring a term nearer, best first.

        Where a term may end, the best token that ends its word is one of them. ``best`` [B, w, k]
        are the tokens with the largest ``log_probs``, largest first.
        """
        places = self.places + self._word_ends(log_probs, best)
        if not places:
            return candidates
        values = log_probs[tuple(np.array(places, dtype=np.int64).T)].tolist()
        present = {(b, row, t) for b, _ in self.sentences for _, row, t, _ in candidates[b]}
        added: dict[int, list[Candidate]] = {}
        for (b, row, token), value in dict(zip(places, values, strict=True)).items():
            if (b, row, token) not in present:
                total = self._sentence[b].alive[row].total + value
                added.setdefault(b, []).append((total, row, token, value))
        for b, sentence_added in added.items():
            candidates[b] = sorted([*candidates[b], *sentence_added], key=lambda c: -c[0])
        return candidates

    def _word_ends(self, log_probs: Tensor, best: np.ndarray) -> list[tuple[int, int, int]]:
        rows = [
            (b, row)
            for b, sentence in self.sentences
            for row, state in enumerate(sentence.states)
            if state.may_end_term
        ]
        if not rows:
            return []
        ends_word = self.sentences[0][1].constraints.vocabulary.ends_word
        tokens = best[tuple(np.array(rows).T)]
        is_end = ends_word[tokens]
        found = tokens[np.arange(len(rows)), is_end.argmax(axis=1)].tolist()
        for i in np.flatnonzero(~is_end.any(axis=1)).tolist():  # it is not among the best
            found[i] = int(np.where(ends_word, log_probs[rows[i]].cpu().numpy(), -np.inf).argmax())
        return [(b, row, token) for (b, row), token in zip(rows, found, strict=True)]
