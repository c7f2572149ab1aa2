"""Templates around a whole clause: tenses, questions, modals, commands, subordinate clauses."""

from __future__ import annotations

from collections.abc import Sequence

from .clauses import ClausePairs, Clauses
from .grammar import Template
from .people import ANY, ASKED, FORMAL, HE, ME, NAMED, PRONOUNS, THIRD, WE, YOU, YOU_ALL
from .times import clock_times, hours, since
from .verb_phrases import VerbPhrases
from .words import Pair, adverbs


# fmt: off
def templates() -> list[Template]:
    """Build the table of clause templates."""
    rows: list[Template] = []

    def add(english: str, german: str, cap: int = 600, **slots: Sequence[object]) -> None:
        rows.append(Template(english, german, slots, cap))

    odd = "only-reason|skill"
    now = VerbPhrases(without=f"{odd}|state|event|study|commute")
    states = VerbPhrases("state|study", without=odd)
    goals = VerbPhrases("goal|order|hobby|outing", without="wait")
    done = VerbPhrases(without=f"{odd}|study|commute|job|home|own|wear|arrive")
    finished = VerbPhrases(without=f"{odd}|state|study|commute|wear|job")
    habits = VerbPhrases("hobby|routine|meal|duty|commute|often")
    routines = VerbPhrases("routine|meal|commute|duty")
    hobbies, skills = VerbPhrases("hobby|rest"), VerbPhrases("skill")
    pastimes = VerbPhrases("hobby", without="consume")
    orders = VerbPhrases("order")
    reasons = VerbPhrases("reason")
    excuses = VerbPhrases("excuse")
    duties = VerbPhrases("order|duty")
    freedoms = VerbPhrases("hobby|outing|go|study")
    future, past, daily = adverbs("future"), adverbs("past"), adverbs("habit")

    # Statements
    add("{c:progressive}.", "{c:present}.", 1000, c=Clauses(ANY, now))
    add("{c:present}.", "{c:present}.", 700, c=Clauses(ANY, states))
    add("{c:progressive}.", "{c:present}.", c=Clauses(ANY, goals, future))
    add("{c:present}.", "{c:present}.", c=Clauses(ANY, habits, daily))
    add("{c:present}.", "{c:present}.", c=Clauses(ANY, routines, clock_times()))
    add("{c:present}.", "{c:present}.", c=Clauses(ANY, habits, (), adverbs("frequency")))
    add("{t} {c:progressive}.", "{t} {c:present v1}.", 700, t=future, c=Clauses(ANY, goals))
    add("{t} {c:present}.", "{t} {c:present v1}.", t=daily, c=Clauses(ANY, habits))
    add("{t} {c:present}.", "{t} {c:present v1}.", 300, t=adverbs("season"),
        c=Clauses(ANY, pastimes))
    add("{t} {c:past}.", "{t} {c:past v1}.", 700, t=past, c=Clauses(ANY, finished))
    add("{c:past}.", "{c:past}.", 1000, c=Clauses(ANY, done))
    add("{c:past}.", "{c:past}.", 700, c=Clauses(ANY, finished, past))
    add("{c:will}.", "{c:will}.", c=Clauses(ANY, goals, future))
    add("{c:going}.", "{c:will}.", c=Clauses(ANY, goals))
    add("{t} {c:will}.", "{t} {c:will v1}.", 300, t=future, c=Clauses(ANY, goals))
    add("Maybe {c:will}.", "Vielleicht {c:will v1}.", 300, c=Clauses(ANY, goals, future))
    add("Now {c:progressive}.", "Jetzt {c:present v1}.", 300, c=Clauses(ANY, now))
    add("Unfortunately {c:had}.", "Leider {c:had v1}.", 200, c=Clauses(ANY, duties))

    # Negation
    add("{c:progressive not}.", "{c:present not}.", 500, c=Clauses(ANY, now))
    add("{c:present not}.", "{c:present not}.", 700, c=Clauses(ANY, states))
    add("{c:past not}.", "{c:past not}.", 800, c=Clauses(ANY, done))
    add("{c:progressive not}.", "{c:present not}.", 400,
        c=Clauses(ANY, goals, adverbs("definite")))
    add("{c:will not}.", "{c:will not}.", 400, c=Clauses(ANY, goals))

    # Modal verbs
    for mode, cap in (("can", 500), ("must", 500), ("want", 500), ("would", 500),
                      ("should", 500), ("may", 250)):
        phrases = {"must": duties, "should": duties, "may": freedoms}.get(mode, goals)
        add(f"{{c:{mode}}}.", f"{{c:{mode}}}.", cap, c=Clauses(ANY, phrases))
        if mode != "would":
            add(f"{{c:{mode} not}}.", f"{{c:{mode} not}}.", cap // 3, c=Clauses(ANY, phrases))
        add(f"{{t}} {{c:{mode}}}.", f"{{t}} {{c:{mode} v1}}.", cap // 3,
            t=adverbs("definite"), c=Clauses(ANY, phrases))
    add("{c:can}.", "{c:can}.", 300, c=Clauses(ANY, skills))
    add("{c:can not}.", "{c:can not}.", 200, c=Clauses(ANY, skills))
    add("{c:can} well.", "{c:can gut}.", 150, c=Clauses(ANY, skills))
    for mode in ("could", "wanted", "had", "might"):
        add(f"{{c:{mode}}}.", f"{{c:{mode}}}.", 300,
            c=Clauses(ANY, {"had": duties, "wanted": goals}.get(mode, freedoms)))
    add("{c:failed not}.", "{c:failed not}.", 250, c=Clauses(ANY, VerbPhrases("goal|rest|know")))
    add("{c:wanted not}.", "{c:wanted not}.", 150, c=Clauses(ANY, goals))

    # Questions
    add("{c:progressive ask}?", "{c:present v1}?", 600, c=Clauses(ASKED, now))
    add("{c:present ask}?", "{c:present v1}?", 600, c=Clauses(ASKED, states))
    add("{c:past ask}?", "{c:past v1}?", 600, c=Clauses(ASKED, done))
    add("{c:progressive ask}?", "{c:present v1}?", 400, c=Clauses(ASKED, goals, future))
    add("{c:can ask}?", "{c:can v1}?", 500, c=Clauses((*ASKED, ME, ME, WE), goals))
    add("{c:must ask}?", "{c:must v1}?", 300, c=Clauses((*ASKED, ME, ME, WE), duties))
    add("{c:want ask}?", "{c:want v1}?", 400, c=Clauses(ASKED, goals))
    add("{c:would ask}?", "{c:would v1}?", 400, c=Clauses(ASKED, goals))
    add("{c:may ask}?", "{c:may v1}?", 150, c=Clauses((ME, WE), freedoms))
    add("{c:will ask}?", "{c:will v1}?", 300, c=Clauses(ASKED, goals))
    add("{c:can ask}?", "{c:can v1}?", 100, c=Clauses(ASKED, skills))
    add("When {c:progressive ask}?", "Wann {c:present v1}?", 400, c=Clauses(ASKED, goals))
    add("When {c:present ask}?", "Wann {c:present v1}?", 200, c=Clauses(ASKED, routines))
    add("When {c:past ask}?", "Wann {c:past v1}?", 400, c=Clauses(ASKED, finished))
    add("Why {c:progressive ask}?", "Warum {c:present v1}?", 400, c=Clauses(ASKED, now))
    add("Why {c:past ask}?", "Warum {c:past v1}?", 400, c=Clauses(ASKED, done))
    add("Why {c:present ask}?", "Warum {c:present v1}?", 200, c=Clauses(ASKED, states))
    add("Who wants to {c:base}?", "Wer will {c:inf}?", 200,
        c=Clauses((HE,), [p for p in goals if not p.own]))
    add("Who can {c:base}?", "Wer kann {c:inf}?", 150, c=Clauses((HE,), skills))
    add("How often {c:present ask}?", "Wie oft {c:present v1}?", 400, c=Clauses(ASKED, habits))
    add("Where can I {c:base}?", "Wo kann ich {c:inf}?", 150,
        c=Clauses((ME,), VerbPhrases("shop|where")))
    add("Where {c:past ask}?", "Wo {c:past v1}?", 300,
        c=Clauses(ASKED, VerbPhrases("where|event|errand|shop", without="reason|arrive")))

    # Commands and suggestions
    add("{c:base}!", "{c:imp}!", 500, c=Clauses((YOU,), orders))
    add("Please {c:base}.", "Bitte {c:imp}.", 400, c=Clauses((YOU,), orders))
    add("Please {c:base}.", "Bitte {c:imp}.", 600, c=Clauses((*FORMAL, YOU_ALL[2]), orders))
    add("{c:base}!", "{c:imp}!", 400, c=Clauses((*FORMAL, *(YOU_ALL[2],) * 3), orders))
    add("Do not {c:base}!", "{c:imp not}!", 300, c=Clauses((YOU,), orders))
    add("Let's {c:base}!", "Lass uns {c:inf}!", 300, c=Clauses((WE,), goals))
    add("Can you please {c:base}?", "Kannst du {c:inf bitte}?", 300, c=Clauses((YOU,), orders))
    add("Could you please {c:base}?", "Könnten Sie {c:inf bitte}?", 300, c=Clauses(FORMAL, orders))

    # Likes and habits
    add("{c:like}.", "{c:like gern}.", 700, c=Clauses(ANY, hobbies))
    add("{c:like not}.", "{c:like not gern}.", 300, c=Clauses(ANY, hobbies))
    add("{c:like ask}?", "{c:like v1 gern}?", 400, c=Clauses(ASKED, hobbies))

    # Subordinate clauses: the verb goes to the end
    subjects = PRONOUNS[2:] * 3 + NAMED
    openings = [("I know that", "Ich weiß, dass"), ("I think that", "Ich glaube, dass"),
                ("We know that", "Wir wissen, dass"), ("Do you know that", "Weißt du, dass")]
    for source, target in openings:
        mark = "?" if source.startswith("Do") else "."
        known = [p for p in subjects if not (p is WE and source.startswith("We"))]
        add(f"{source} {{c:progressive}}{mark}", f"{target} {{c:present vl}}{mark}", 200,
            c=Clauses(known, now))
        add(f"{source} {{c:present}}{mark}", f"{target} {{c:present vl}}{mark}", 150,
            c=Clauses(known, states))
        add(f"{source} {{c:past}}{mark}", f"{target} {{c:past vl}}{mark}", 200,
            c=Clauses(known, finished))
    add("I hope that {c:present}.", "Ich hoffe, dass {c:present vl}.", 150,
        c=Clauses(THIRD, VerbPhrases("plain|event goal|free|know")))
    add("I don't know if {c:can}.", "Ich weiß nicht, ob {c:can vl}.", 300, c=Clauses(ANY, goals))
    add("I don't know if {c:past}.", "Ich weiß nicht, ob {c:past vl}.", 200,
        c=Clauses(THIRD, finished))
    add("Do you know if {c:present}?", "Weißt du, ob {c:present vl}?", 200,
        c=Clauses(THIRD, states))
    add("Do you know when {c:progressive}?", "Weißt du, wann {c:present vl}?", 200,
        c=Clauses(THIRD, goals))
    add("I don't know why {c:past}.", "Ich weiß nicht, warum {c:past vl}.", 200,
        c=Clauses(THIRD, done))
    add("{e:progressive} because {c:present pro}.", "{e:present}, weil {c:present vl pro}.", 600,
        **{"e c": ClausePairs(ANY, excuses, reasons)})
    add("{e:must} because {c:present pro}.", "{e:must}, weil {c:present vl pro}.", 200,
        **{"e c": ClausePairs(ANY, excuses, reasons)})
    add("{e:can not} because {c:present pro}.", "{e:can not}, weil {c:present vl pro}.", 300,
        **{"e c": ClausePairs(ANY, VerbPhrases("plain"), VerbPhrases("reason|no-time"))})
    add("Because {c:present}, {e:progressive pro}.", "Weil {c:present vl}, {e:present v1 pro}.",
        250, **{"e c": ClausePairs(ANY, excuses, reasons)})
    add("{e:progressive} although {c:present pro}.", "{e:present}, obwohl {c:present vl pro}.",
        250, **{"e c": ClausePairs(ANY, VerbPhrases("goal"), VerbPhrases("reason|no-time"))})
    add("When {c:present}, {e:present pro}.", "Wenn {c:present vl}, {e:present v1 pro}.", 500,
        **{"e c": ClausePairs(ANY, pastimes, VerbPhrases("free"))})
    add("If it rains, {c:will}.", "Wenn es regnet, {c:present v1}.", 200,
        c=Clauses(ANY, VerbPhrases("indoors")))
    add("If the weather is nice, {c:will}.", "Wenn das Wetter schön ist, {c:present v1}.", 200,
        c=Clauses(ANY, VerbPhrases("outing")))
    bedtime = VerbPhrases("routine|meal|duty")
    add("Before {e:present}, {c:present pro}.", "Bevor {e:present vl}, {c:present v1 pro}.", 250,
        **{"c e": ClausePairs(ANY, bedtime, VerbPhrases("go-out"))})

    # Infinitives with zu
    add("{c:who} did not have time to {c:base}.", "{c:who} {c/haben past} keine Zeit, {c:zu}.", 400,
        c=Clauses(ANY, goals))
    for source, target in (("forgot", "{c/haben} vergessen"), ("tried", "{c/haben} versucht")):
        add(f"{{c:who}} {source} to {{c:base}}.", f"{{c:who}} {target}, {{c:zu}}.", 250,
            c=Clauses(ANY, orders))
    add("It is fun to {c:base}.", "Es macht Spaß, {c:zu}.", 150, c=Clauses((ME,), hobbies))
    # These sentences have no subject, so that a reflexive pronoun would refer to nobody.
    general = [p for p in VerbPhrases("duty|routine|study") if not p.reflexive and not p.own]
    add("It is important to {c:base}.", "Es ist wichtig, {c:zu}.", 150, c=Clauses((ME,), general))
    add("{c:who} {c/have} no time to {c:base}.", "{c:who} {c/haben} keine Zeit, {c:zu}.", 400,
        c=Clauses(ANY, goals))
    add("{c:who} {c/need} a car to {c:base}.", "{c:who} {c/brauchen} ein Auto, um {c:zu}.", 150,
        c=Clauses(ANY, VerbPhrases("ride")))
    add("{c:who} {c/be} going to the city centre to {c:base}.",
        "{c:who} {c/fahren} in die Innenstadt, um {c:zu}.", 250,
        c=Clauses(ANY, VerbPhrases("shop|errand")))

    # The present with seit
    add("{c:perfect}.", "{c:present}.", 300, c=Clauses(ANY, VerbPhrases("home"), since()))
    add("{c:been}.", "{c:present}.", 300, c=Clauses(ANY, VerbPhrases("study|job"), since(5)))
    add("{c:been}.", "{c:present}.", 150, c=Clauses(ANY, VerbPhrases("wait"), hours()))
    add("How long {c:been ask}?", "Wie lange {c:present v1}?", 200,
        c=Clauses(ASKED, VerbPhrases("study|job|wait"), (Pair("", "schon"),)))
    return rows
# fmt: on
