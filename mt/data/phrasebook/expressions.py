"""Expressions: what people say they do, and what happens, each in up to sixteen clauses.

The slot grammar fills a few phrases with many words. Here many fixed phrases, most of which cannot
be translated word for word, meet all persons, tenses and orders of words: those of expressions.tsv,
and with subjects of their own those of happenings.tsv.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from .clauses import Clause
from .grammar import render
from .people import ASKED, FORMAL, HE, ME, NAMED, PRONOUNS, SHE, THEY, THIRD, WE, YOU, YOU_ALL
from .verb_phrases import Action, VerbPhrase, action, actions, bindings
from .words import Pair, Person, adverbs, rows

CLAUSES = 16  # of each expression, at most
TRIES = 8  # subjects and times that are drawn until they suit

SIR = (Person("Sie", vocative=("", "")),)  # in requests, which German says with du or Sie
KIDS = YOU_ALL[2]
ADULTS = tuple(person for person in NAMED if not person.child)
ANY = (*PRONOUNS * 4, *YOU_ALL, *FORMAL, *ADULTS)
OTHERS = tuple(person for person in THIRD if not person.child)
# A phrase is not negated like others if it says "not" itself, or names a thing without an article.
_NEGATIVE = re.compile(
    r"\b(?:kein\w*|nicht|nichts|nie|noch(?! einmal)|etwas|es|ein (?:paar|bisschen))\b"
)
# "Zeit haben", "gute Laune haben": a noun, perhaps after an adjective that has its ending.
_BARE = re.compile(r"(?:\{\w+\} )*(?:[a-zäöüß]+e[nrs]? |mehr |viel )?[A-ZÄÖÜ]")
# What looks like such an adjective.
_WITH_ARTICLE = re.compile(r"(?:\{\w+\} )*(?:d(?:er|ie|as|e[nm])|eine?[nmr]?|über|unter) ")
_DOUBLE = ("lassen", "können", "müssen", "wollen", "sollen")  # with another infinitive


@dataclass(frozen=True)
class Frame:
    """A sentence around a clause ``c`` in both languages, and who and when it may be about."""

    kinds: str
    english: str
    german: str
    subjects: Sequence[Person] = ANY
    times: Sequence[Pair | None] = (None,)
    adverbs: Sequence[Pair | None] = (None,)

    @property
    def is_general(self) -> bool:
        """Whether German names no subject, to whom "sich" or "mein" could refer."""
        return self.subjects == ()

    def clause(
        self, phrase: VerbPhrase, subject: Person | None, rng: random.Random
    ) -> Clause | None:
        """A clause that suits the frame, if one is found."""
        if self.is_general and (phrase.reflexive or phrase.own):
            return None
        for _ in range(TRIES):
            who = subject or rng.choice(self.subjects or (ME,))
            shared = phrase.own and who.sex == "mixed"  # "they forgot their umbrella"
            if phrase.suits(who) and not shared:
                return Clause(who, phrase, rng.choice(self.times), rng.choice(self.adverbs))
        return None


def _adverb(source: str, target: str) -> tuple[Pair]:
    return (Pair(source, target),)


# fmt: off
def frames() -> list[Frame]:
    """Build the table of frames.

    The kinds are those of expressions.tsv by their first letters, and those of happenings.tsv as
    capitals.
    """
    future, past = (None, *adverbs("future")), (None, *adverbs("past"))
    habit, often = adverbs("habit"), adverbs("frequency")
    mine = (ME, WE)
    row = Frame
    return [
        # Statements and questions
        row("delE", "{c:past}.", "{c:past}.", ANY, past),
        row("delE", "{c:past ask}?", "{c:past v1}?", ASKED, past),
        row("delE", "{c:past not}.", "{c:past not}."),
        row("delE", "Why {c:past ask}?", "Warum {c:past v1}?", ASKED),
        row("delE", "When {c:past ask}?", "Wann {c:past v1}?", ASKED),
        row("delE", "{c:perfect}.", "{c:perfect}.", ANY, (None,), _adverb("just", "gerade")),
        row("del", "{c:perfect ask}?", "{c:perfect v1}?", ASKED, (None,),
            _adverb("ever", "schon einmal")),
        row("delE", "{c:past}.", "{c:past}.", ANY, _adverb("again", "schon wieder")),
        row("delE", "{c:will}.", "{c:will}.", ANY, future),
        row("d", "{c:progressive}.", "{c:present}.", ANY, future),
        row("dE", "{c:perfect not} yet.", "{c:perfect not}.", ANY, _adverb("", "noch")),
        row("dE", "{c:perfect ask} yet?", "{c:perfect v1}?", ASKED, _adverb("", "schon")),
        row("d", "{c:present}.", "{c:present}.", ANY, habit),
        row("d", "{c:present}.", "{c:present}.", ANY, (None,), often),
        row("sS", "{c:present}.", "{c:present}."),
        row("sS", "{c:present not}.", "{c:present not}."),
        row("sS", "{c:present ask}?", "{c:present v1}?", ASKED),
        row("sS", "{c:past} at that time.", "Damals {c:past v1}."),
        row("sS", "{c:who} {c/seem} to {c:base}.", "{c:who} {c/scheinen} {c:zu}.", OTHERS),
        row("sS", "Why {c:present ask}?", "Warum {c:present v1}?", ASKED),
        # Modal verbs and commands
        row("d", "{c:must}.", "{c:must}.", ANY, future),
        row("d", "{c:must ask}?", "{c:must v1}?", ASKED),
        row("d", "{c:can ask}?", "{c:can v1}?", (*(YOU,) * 12, *mine * 4)),
        row("d", "{c:want}.", "{c:want}.", ANY, future),
        row("d", "{c:would}.", "{c:would}."),
        row("d", "{c:should}.", "{c:should}."),
        row("d", "Unfortunately, {c:failed not}.", "Leider {c:failed v1 not}."),
        row("d", "{c:base}!", "{c:imp}!", (YOU, YOU, KIDS)),
        row("d", "Please {c:base}.", "Bitte {c:imp}.", (*SIR, YOU)),
        row("d", "Don't {c:base}!", "{c:imp not}!", (YOU, *SIR)),
        row("d", "Could you {c:base}, please?", "Könnten Sie {c:inf bitte}?", SIR),
        row("d", "Can you {c:base}?", "Kannst du {c:inf}?", (YOU,)),
        row("d", "Let's {c:base}!", "Lass uns {c:inf}!", ()),
        row("d", "{c:who} {c/be} supposed to {c:base}.", "{c:who} {c/sollen} {c:inf}."),
        row("d", "You should have {c:participle}.", "Du hättest {c:inf} sollen.", (YOU,)),
        row("d", "How can I {c:base}?", "Wie kann ich {c:inf}?", (ME,)),
        row("d", "Who is going to {c:base}?", "Wer wird {c:inf}?", ()),
        row("e", "{c:want not}.", "{c:want not}.", (*mine, *OTHERS)),
        # Infinitives with zu
        row("d", "Don't forget to {c:base}.", "Vergiss nicht, {c:zu}.", (YOU,)),
        row("d", "Don't forget to {c:base}.", "Vergessen Sie nicht, {c:zu}.", SIR),
        row("d", "I was just about to {c:base}.", "Ich wollte {c:inf gerade}.", (ME,)),
        row("d", "They asked me to {c:base}.", "Man hat mich gebeten, {c:zu}.", (ME,)),
        row("d", "{c:who} promised to {c:base}.", "{c:who} {c/haben} versprochen, {c:zu}."),
        row("d", "I've decided to {c:base}.", "Ich habe beschlossen, {c:zu}.", (ME,)),
        row("d", "We had no time to {c:base}.", "Wir hatten keine Zeit, {c:zu}.", (WE,)),
        row("d", "It's time to {c:base}.", "Es ist Zeit, {c:zu}.", ()),
        row("d", "There's no point in {c:ing}.", "Es hat keinen Sinn, {c:zu}.", ()),
        row("d", "Instead of {c:ing}, you should rest.", "Statt {c:zu}, solltest du dich ausruhen.",
            (YOU,)),
        row("d", "He went to bed without {c:ing}.",
            "Er ist ins Bett gegangen, ohne {c:zu}.", (HE,)),
        row("d", "She left without {c:ing}.", "Sie ist gegangen, ohne {c:zu}.", (SHE,)),
        row("e", "{c:who} {c/be} afraid of {c:ing}.", "{c:who} {c/haben} Angst, {c:zu}."),
        # Subordinate clauses
        row("delE", "Did you know that {c:past}?", "Wusstest du, dass {c:past vl}?", OTHERS),
        row("delE", "That's because {c:past}.", "Das liegt daran, dass {c:past vl}."),
        row("del", "{c:who} said that {c:pluperfect pro}.",
            "{c:who} {c/haben} gesagt, dass {c:past vl pro}.", OTHERS),
        row("del", "He was happy after he had {c:participle}.",
            "Er war froh, nachdem {c:pluperfect vl pro}.", (HE,)),
        row("d", "{c:who} can't come because {c:must pro}.",
            "{c:who} {c/können} nicht kommen, weil {c:must vl pro}."),
        row("d", "I'll call you as soon as {c:perfect}.",
            "Ich rufe dich an, sobald {c:perfect vl}.",
            (*mine, *OTHERS)),
        row("d", "Before {c:present}, please ask me.", "Bitte frag mich, bevor {c:present vl}.",
            (YOU,)),
        row("d", "Before {c:present}, please ask us.",
            "Bitte fragen Sie uns, bevor {c:present vl}.",
            SIR),
        row("d", "If {c:present}, you'll feel better.",
            "Wenn {c:present vl}, wird es dir besser gehen.", (YOU,)),
        row("d", "I don't know whether {c:should}.", "Ich weiß nicht, ob {c:should vl}.", mine),
        row("d", "If I had known that, I would have {c:participle}.",
            "Wenn ich das gewusst hätte, {c:unreal v1}.", (ME,)),
        row("d", "If they had asked us, we would have {c:participle}.",
            "Wenn man uns gefragt hätte, {c:unreal v1}.", (WE,)),
        row("l", "I hope {c:present}.", "Hoffentlich {c:present v1}."),
        row("l", "I'm glad that {c:past}.", "Ich bin froh, dass {c:past vl}.", (YOU, *OTHERS)),
        row("l", "{c:who} {c/be} hoping to {c:base}.", "{c:who} {c/hoffen}, {c:zu}."),
        row("e", "I'm afraid {c:perfect}.", "Ich fürchte, {c:perfect}.", (*mine, *OTHERS)),
        row("elE", "What happens if {c:present}?",
            "Was passiert, wenn {c:present vl}?", (*mine, YOU)),
        row("elE", "{c:past}.", "{c:unreal}.", ANY, (None,), _adverb("nearly", "beinahe")),
        row("e", "I hope {c:present not}.", "Hoffentlich {c:present v1 not}.", (*mine, *OTHERS)),
        row("elE", "If {c:present}, call me.", "Wenn {c:present vl}, ruf mich an.", (YOU,)),
        row("e", "Be careful, or {c:will}!", "Pass auf, sonst {c:present v1}!", (YOU,)),
        row("e", "Be careful, or {c:will}!", "Passen Sie auf, sonst {c:present v1}!", SIR),
        row("sS", "I think {c:present}.", "Ich glaube, {c:present}.", (ME, *OTHERS)),
        row("sS", "I know that {c:present}.", "Ich weiß, dass {c:present vl}.", (YOU, *OTHERS)),
        row("sS", "Do you know if {c:present}?", "Weißt du, ob {c:present vl}?", OTHERS),
        row("ES", "What do we do if {c:present}?", "Was machen wir, wenn {c:present vl}?"),
        row("E", "I think {c:past}.", "Ich glaube, {c:past}."),
        row("E", "We were late because {c:past}.", "Wir kamen zu spät, weil {c:past vl}."),
        row("E", "When {c:past}, we were at home.", "Als {c:past vl}, waren wir zu Hause."),
        row("E", "Let me know as soon as {c:perfect}.", "Sag mir Bescheid, sobald {c:perfect vl}."),
        row("S", "I was told that {c:present}.", "Man hat mir gesagt, dass {c:present vl}."),
        row("S", "We can't stay because {c:present}.",
            "Wir können nicht bleiben, weil {c:present vl}."),
        row("S", "It doesn't matter whether {c:present}.", "Es ist egal, ob {c:present vl}."),
        row("s", "{c:who} told me that {c:past pro}.",
            "{c:who} {c/haben} mir erzählt, dass {c:present vl pro}.", OTHERS),
        row("s", "{c:who} can't help because {c:present pro}.",
            "{c:who} {c/können} nicht helfen, weil {c:present vl pro}."),
        row("sS", "If {c:present}, just tell me.",
            "Wenn {c:present vl}, sag es mir einfach.", (YOU,)),
        row("sS", "If {c:present}, please tell us.", "Wenn {c:present vl}, sagen Sie es uns bitte.",
            SIR),
        row("s", "{c:who} {c/be past} surprised that {c:past pro}.",
            "{c:who} {c/sein past} überrascht, dass {c:past vl pro}.", (THEY,)),
    ]
# fmt: on


def fits(frame: Frame, kind: str, action: Action, subject: Person | None) -> bool:
    """Whether the frame suits the phrase: its kind, and what is negated or at the end."""
    if kind not in frame.kinds:
        return False
    german = " ".join(p if isinstance(p, str) else f"{{{p[0]}}}" for p in action.german)
    if frame.german.startswith("Lass uns") and german.split()[:1] == ["es"]:
        return False  # "Lass es uns versuchen!"
    if "not}" in frame.english + frame.german:
        pronoun = subject is not None and subject.target.islower()  # "nothing", "somebody"
        bare = _BARE.match(german) and not _WITH_ARTICLE.match(german)
        if pronoun or bare or _NEGATIVE.search(german):
            return False
    # "dass er das Auto hat reparieren lassen" has an order of its own.
    last = action.german_verb
    is_double = last.infinitive in _DOUBLE and last.strong == last.infinitive
    return not (is_double and re.search("(?:past|perfect) vl", frame.german))


def phrases() -> Iterator[tuple[str, Person | None, Action]]:
    """The phrases of both tables: kind, subject if it has one of its own, action."""
    for phrase in actions("expressions"):
        (kind,) = phrase.tags
        yield kind[0], None, phrase
    for source, target, english, german, tags in rows("happenings", 5):
        kind, _, plural = tags.partition(" ")
        key = "pl" if plural else {"die": "sie", "das": "es"}.get(target.split()[0], "er")
        yield kind[0].upper(), Person(key, source, target), action(english, german, kind)


def _sentences() -> Iterator[tuple[str, str]]:
    table = frames()
    for kind, subject, phrase in phrases():
        rng = random.Random(f"{subject} {phrase.english_verb} {phrase.english_rest}")
        suitable = [frame for frame in table if fits(frame, kind, phrase, subject)]
        for frame in rng.sample(suitable, min(CLAUSES, len(suitable))):
            clause = frame.clause(rng.choice(bindings(phrase)), subject, rng)
            if clause is not None:
                yield render(frame.english, frame.german, {"c": clause}, rng)


@cache
def expand() -> tuple[tuple[str, str], ...]:
    """Return all pairs, each once, the same in every run."""
    return tuple(dict.fromkeys(_sentences()))
