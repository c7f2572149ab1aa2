"""Clauses: a subject and a verb phrase, in the word order of either language.

The German order follows the topological fields. Every clause has a middle field

    pronouns - time - definite objects - adverb - nicht - indefinite objects - complement

and an order, which says where the finite verb stands: second (``v2``), first (``v1``, also after a
fronted word) or last (``vl``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from . import english as en
from . import morphology as de
from .verb_phrases import VerbPhrase, VerbPhrases
from .words import Pair, Person, english_past, verb

# mode: English verbs before the main verb, their tense, German modal, whether it is in the past
MODALS = {
    "can": ("can", "modal", "können", False),
    "could": ("could", "modal", "könnten", False),
    "failed": ("could", "modal", "können", True),  # "could not" in the past
    "should": ("should", "modal", "sollten", False),
    "will": ("will", "modal", "werden", False),
    "would": ("would", "modal", "möchten", False),
    "want": ("want", "present", "wollen", False),
    "wanted": ("want", "past", "wollen", True),
    "must": ("have", "present", "müssen", False),
    "had": ("have", "past", "müssen", True),
    "going": ("be going", "present", "werden", False),
    "may": ("be allowed", "present", "dürfen", False),
    "might": ("be allowed", "past", "dürfen", True),
}


@dataclass(frozen=True)
class Clause:
    """A subject, a verb phrase and perhaps a time or an adverb like "often"."""

    subject: Person
    phrase: VerbPhrase
    time: Pair | None = None
    adverb: Pair | None = None

    @property
    def vocative(self) -> tuple[str, str]:
        return self.subject.vocative

    @property
    def sensible(self) -> bool:
        return self.phrase.suits(self.subject)

    def agree_english(self, name: str) -> str:
        return self.subject.agree_english(name)

    def agree_german(self, name: str) -> str:
        return self.subject.agree_german(name)

    def english(self, spec: str = "", owner: Person | None = None) -> str:
        """Render; spec is a mode and perhaps "ask", "not", "pro" (pronoun for the subject)."""
        words = spec.split()
        mode = words[0]
        if mode == "who":
            return self.subject.english()
        subject = self.subject.english("pro" if "pro" in words else "")
        if mode == "like":
            main, rest = "like", f"{en.gerund(self.phrase.action.english_verb)} "
            rest += self.phrase.english_rest(self.subject)
            mode = "present"
        else:
            main = self.phrase.action.english_verb
            rest = self.phrase.english_rest(self.subject)
        time = self.time.source if self.time else ""
        if mode in ("base", "ing", "participle"):
            forms = {"base": main, "ing": en.gerund(main), "participle": english_past(main)[1]}
            return _join(forms[mode], rest, time)
        tense = mode
        helper = ""
        if mode in MODALS:
            first, tense, _, _ = MODALS[mode]
            if tense == "modal":
                helper, main = first, ("like to " if mode == "would" else "") + main
            else:
                rest = f"{first.partition(' ')[2]} to {main} {rest}"
                main = first.partition(" ")[0]
        agree = self.subject.agree_english
        if not helper and main == "be" and tense in ("present", "past", "progressive"):
            helper, main = agree("be past" if tense == "past" else "be"), ""
        elif tense == "progressive":
            helper, main = agree("be"), en.gerund(main)
        elif tense in ("present", "past"):
            if "ask" in words or "not" in words:
                helper = "did" if tense == "past" else agree("do")
            else:
                main = english_past(main)[0] if tense == "past" else agree(main)
        elif tense == "perfect":
            helper, main = agree("have"), english_past(main)[1]
        elif tense in ("pluperfect", "unreal"):
            helper = "had" if tense == "pluperfect" else "would have"
            main = english_past(main)[1]
        elif tense == "been":
            helper = agree("have")
            main = "been " + en.gerund(main)
        negation = "not" if "not" in words else ""
        adverb = self.adverb.source if self.adverb else ""
        if "ask" in words:
            return _join(helper, subject, negation, adverb, main, rest, time)
        return _join(subject, helper, negation, adverb, main, rest, time)

    def german(self, spec: str = "", owner: Person | None = None) -> str:
        """Render; spec is a mode and perhaps an order, "not", "pro", or one of four adverbs."""
        words = spec.split()
        if words[0] == "who":
            return self.subject.german()
        mode = "present" if words[0] in ("progressive", "like") else words[0]
        person, main = self.subject.grammar.person, self.phrase.action.german_verb
        time = self.time.target if self.time else ""
        adverb = self.adverb.target if self.adverb else ""
        adverb = next((w for w in words if w in ("gern", "gut")), adverb)
        pronouns, middle = self.phrase.german_middle(self.subject, time, adverb, "not" in words)
        if mode in ("inf", "zu"):
            # A pronoun stays next to the subject: "Können Sie sich bitte setzen?"
            adverb = next((word for word in words if word in ("bitte", "gerade")), "")
            verbal = de.zu_infinitive(main) if mode == "zu" else main.name
            return _join(*pronouns, adverb, *middle, verbal)
        if mode == "imp":
            addressed = "Sie" if self.subject.key == "Sie" else ""
            finite = de.imperative(main, self.subject.key)
            return _join(finite, addressed, *pronouns, *middle, main.prefix)
        if mode in MODALS:
            _, _, modal, in_past = MODALS[mode]
            finite, tail = (de.past if in_past else de.present)(verb(modal), person), main.name
        elif mode == "past" and main.has_past:
            finite, tail = de.past(main, person), main.prefix
        elif mode in ("past", "perfect"):
            finite, tail = de.present(verb(main.auxiliary), person), de.participle(main)
        elif mode == "pluperfect":
            finite, tail = de.past(verb(main.auxiliary), person), de.participle(main)
        elif mode == "unreal":
            auxiliary = {"haben": "hätten", "sein": "wären"}[main.auxiliary]
            finite, tail = de.present(verb(auxiliary), person), de.participle(main)
        else:
            finite, tail = de.present(main, person), main.prefix
        subject = self.subject.german("pro" if "pro" in words else "")
        # An object pronoun comes before a full subject ("Morgen hilft mir mein Bruder."), unless
        # it could be taken for the subject itself ("Morgen fragt mein Bruder sie.").
        light = self.subject.is_pronoun or "pro" in words or "sie" in pronouns
        start = [subject, *pronouns] if light else [*pronouns, subject]
        if "vl" in words:
            joined = tail + finite if tail and tail == main.prefix else _join(tail, finite)
            return _join(*start, *middle, joined)
        if "v1" in words:
            return _join(finite, *start, *middle, tail)
        return _join(subject, finite, *pronouns, *middle, tail)


def _join(*words: str) -> str:
    return " ".join(word for word in words if word).replace("  ", " ").strip()


class Clauses(Sequence[Clause]):
    """The product of subjects, verb phrases, times and adverbs, built on access."""

    def __init__(
        self,
        subjects: Sequence[Person],
        phrases: Sequence[VerbPhrase],
        times: Sequence[Pair] = (),
        adverbs: Sequence[Pair] = (),
    ) -> None:
        self._subjects, self._phrases = subjects, phrases
        self._times: Sequence[Pair | None] = times or [None]
        self._adverbs: Sequence[Pair | None] = adverbs or [None]

    def __len__(self) -> int:
        return len(self._subjects) * len(self._phrases) * len(self._times) * len(self._adverbs)

    def __getitem__(self, index: Any) -> Any:
        index, subject = divmod(index, len(self._subjects))
        index, time = divmod(index, len(self._times))
        phrase, adverb = divmod(index, len(self._adverbs))
        return Clause(
            self._subjects[subject], self._phrases[phrase], self._times[time], self._adverbs[adverb]
        )

    def __iter__(self) -> Iterator[Clause]:
        return (self[i] for i in range(len(self)))


class ClausePairs(Sequence[tuple[Clause, Clause]]):
    """Pairs of clauses about the same person."""

    def __init__(self, subjects: Sequence[Person], first: VerbPhrases, second: VerbPhrases) -> None:
        self._first, self._second = Clauses(subjects, first), second

    def __len__(self) -> int:
        return len(self._first) * len(self._second)

    def __getitem__(self, index: Any) -> Any:
        first, second = divmod(index, len(self._second))
        clause = self._first[first]
        return clause, Clause(clause.subject, self._second[second])
