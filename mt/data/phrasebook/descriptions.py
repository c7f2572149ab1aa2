"""Templates around things: what they are like, whose they are, what they cost, where they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from .grammar import Template
from .people import ANY, FORMAL, HE, ME, MEN, NAMED, SHE, SINGLE, THEY, WE, WOMEN, YOU
from .times import amounts, numbers
from .words import Adjective, NounPhrase, Pair, adjectives, fitting, naming, nouns, pairs, places

THINGS = "furniture|thing|clothes|read|device|instrument|owned"


@cache
def things(classes: str, without: str = "") -> tuple[NounPhrase, ...]:
    """Noun phrases of the classes, without adjectives; none with a class of ``without``."""
    unwanted = set(without.split("|"))
    return tuple(NounPhrase(n) for n in nouns(classes) if not unwanted & n.tags)


@cache
def described(classes: str, without: str = "") -> tuple[NounPhrase, ...]:
    """The same, each with every adjective that can stand before it."""
    return tuple(
        NounPhrase(n.noun, "the", adjective)
        for n in things(classes, without)
        for adjective in naming(n.noun)
    )


@cache
def qualities(classes: str, without: str = "") -> tuple[tuple[NounPhrase, Adjective], ...]:
    """Noun phrases, each with every adjective that can describe it."""
    return tuple((n, a) for n in things(classes, without) for a in fitting(n.noun))


@cache
def plurals(classes: str) -> tuple[tuple[NounPhrase, Adjective], ...]:
    """Plural noun phrases, each with every adjective that can describe it."""
    return tuple(
        (NounPhrase(n.noun, "the", None, True), a)
        for n, a in qualities(classes)
        if "count" in n.noun.tags or "person" in n.noun.tags
    )


# fmt: off
def templates() -> list[Template]:
    """Build the table of templates around noun phrases."""
    table: list[Template] = []

    def add(english: str, german: str, cap: int = 300, **slots: Sequence[object]) -> None:
        table.append(Template(english, german, slots, cap))

    comparable = f"{THINGS}|vehicle|building|room|region|animal|media|nature"
    kin = things("kin")
    people = things("person")
    prepositions = pairs("preposition")

    # What things are like
    add("{n:the} {n/be} {a}.", "{n:the} {n/sein} {a}.", 500, **{"n a": qualities(comparable)})
    add("{n:my} {n/be} {a}.", "{n:my} {n/sein} {a}.", 400, **{"n a": qualities(THINGS)})
    add("{n:the} {n/be} not {a}.", "{n:the} {n/sein} nicht {a}.", 300,
        **{"n a": qualities(comparable)})
    add("{n:the} {n/be} very {a}.", "{n:the} {n/sein} sehr {a}.", 400,
        **{"n a": [p for p in qualities(f"{comparable}|person", "container")
                   if p[1].comparative != "-"]})
    add("{n:the} {n/be} too {a}.", "{n:the} {n/sein} zu {a}.", 250,
        **{"n a": [(n, a) for n, a in qualities("clothes|furniture|vehicle|room")
                   if a.target in ("groß", "klein", "teuer", "alt", "schwer", "langsam", "laut",
                                   "kalt", "dunkel", "warm")]})
    add("{n/be} {n:the} {a}?", "{n/sein} {n:the} {a}?", 400, **{"n a": qualities(comparable)})
    add("{n:the plural} are {a}.", "{n:the plural} sind {a}.", 400,
        **{"n a": plurals(f"{comparable}|person|food")})
    add("This is {n:a}.", "Das ist {n:a}.", 400,
        n=described(f"{comparable}|person", "plural|plural-en"))
    add("That is not {n:a}.", "Das ist {n:no}.", 150,
        n=described("building|region|read|media|task", "plural|plural-en"))
    add("This is {n:my}.", "Das ist {n:my}.", 300, n=described(THINGS, "plural|plural-en"))
    add("This is {n:our}.", "Das ist {n:our}.", 150, n=described("home|room|owned|furniture"))
    add("Is this {n:your}?", "Ist das {n:your}?", 250, n=described(THINGS, "plural|plural-en"))
    add("This is {n:my}. {n:pro} {n/be} {a}.", "Das ist {n:my}. {n:pro} ist {a}.", 300,
        **{"n a": qualities(THINGS, "plural|plural-en")})
    add("What colour {n/be} {n:your}?", "Welche Farbe {n/haben} {n:your}?", 80,
        n=things("clothes|owned|container"))
    add("{n:which} is {a}?", "{n:which} ist {a}?", 200,
        **{"n a": qualities(comparable, "plural|plural-en")})

    # Comparison
    groups = ("owned", "public", "furniture", "home|town building", "animal", "clothes", "room")
    for group in groups:
        add("{n:the} {n/be} {a:more} than {m:the}.", "{n:the} {n/sein} {a:more} als {m:the}.", 150,
            m=things(group), **{"n a": [p for p in qualities(group) if p[1].comparative != "-"]})
        add("{n:the} {n/be} as {a} as {m:the}.", "{n:the} {n/sein} so {a} wie {m:the}.", 60,
            m=things(group), **{"n a": [p for p in qualities(group) if p[1].comparative != "-"]})
    human = adjectives("human") + adjectives("person")
    add("{s} {s/be} {a:more} than {t:obj}.", "{s} {s/sein} {a:more} als {t}.", 300,
        s=SINGLE, a=human, t=(*NAMED, ME, YOU, HE, SHE))
    add("{s} {s/be} as {a} as {t:obj}.", "{s} {s/sein} so {a} wie {t}.", 150,
        s=SINGLE, a=human, t=(*NAMED, ME, YOU))

    # Having, owning, liking
    add("{s} {s/have} {n:a}.", "{s} {s/haben} {n:a acc}.", 500, s=ANY,
        n=described("clothes|thing|owned|furniture|home|pet|instrument"))
    add("Do you have {n:a}?", "Hast du {n:a acc}?", 200,
        n=(*things("thing|lose|pet|owned", "plural-en"), *described("home|pet|owned")))
    add("{s} {s/have} {k} {n:plural}.", "{s} {s/haben} {k} {n:plural acc}.", 300, s=ANY,
        k=numbers(2, 12), n=things("count thing|count fruit|count read"))
    add("{s} {s/have} {k} {n:plural}.", "{s} {s/haben} {k} {n:plural acc}.", 150, s=ANY,
        k=numbers(2, 5), n=things("count pet|sibling"))
    add("How many {n:plural} do you have?", "Wie viele {n:plural} hast du?", 80,
        n=things("count thing|pet|sibling|count read|count clothes"))
    add("There are {k} {n:plural} on the table.", "Auf dem Tisch sind {k} {n:plural}.", 200,
        k=numbers(2, 20), n=things("count fruit|count read|count lie"))
    add("{n:the} {n/belong} to {s:obj}.", "{n:the} {n/gehören} {s:dat}.", 300,
        n=things(THINGS), s=(ME, HE, SHE, WE, THEY, *MEN, *WOMEN))
    add("{n:the} {n/belong} to {k:my}.", "{n:the} {n/gehören} {k:my dat}.", 300,
        n=things(THINGS), k=kin)
    add("Does {n:the} belong to {k:your}?", "Gehört {n:the} {k:your dat}?", 100,
        n=things(THINGS, "plural|plural-en"), k=kin)
    add("That is {k:my}'s {n:bare}.", "Das ist {n:the} {k:my gen}.", 300,
        k=things("kin", "plural"), n=things(f"{THINGS}|home", "plural|plural-en"))
    add("{k:my}'s {n:bare} {n/be} {a}.", "{n:the} {k:my gen} {n/sein} {a}.", 300,
        k=things("kin", "plural"), **{"n a": qualities("clothes|owned|home|device")})
    add("{s}'s {n:bare} {n/be} {a}.", "{s}s {n:bare} {n/sein} {a}.", 250,
        s=(*MEN, *WOMEN), **{"n a": qualities("clothes|owned|home|device|room")})
    add("{s} {s/like} {n:the}.", "{n:the} {n/gefallen} {s:dat}.", 400, s=(*SINGLE, WE, THEY),
        n=(*things("home|clothes|art|region|song|film|owned"), *described("clothes|furniture")))
    add("Do you like {n:the}?", "{n/gefallen} dir {n:the}?", 200,
        n=(*things("home|clothes|art|region|song|film|owned"), *described("clothes|furniture")))
    add("{s} {s/like} {n:bare}.", "{s} {s/mögen} {n:bare acc}.", 300, s=ANY,
        n=things("food mass|drink mass"))
    add("{s} {s/do} not like {n:bare}.", "{s} {s/mögen} {n:no acc}.", 250, s=ANY,
        n=things("food mass|drink mass"))
    add("{s} {s/like} {n:plural}.", "{s} {s/mögen} {n:plural acc}.", 250, s=ANY,
        n=things("animal|fruit|count food"))
    add("Do you like {n:plural}?", "Magst du {n:plural acc}?", 60,
        n=things("animal|fruit|count food"))
    add("Do you like {n:bare}?", "Magst du {n:bare acc}?", 60, n=things("food mass|drink mass"))
    add("{n:the} {n/taste} very good.", "{n:the} {n/schmecken} sehr gut.", 60,
        n=things("food|drink|dish"))
    add("{n:the} {n/suit} you.", "{n:the} {n/stehen} dir gut.", 100,
        n=(*things("clothes"), *described("clothes colour")))
    for noun in nouns("favourite"):
        favourite = [NounPhrase(noun)]
        add("What is {n:your}?", "Was ist {n:your}?", n=favourite)
        add("{n:my} is {x}.", "{n:my} ist {x}.", n=favourite, x=pairs(noun.source))

    # In a shop and in a restaurant
    add("How much {n/do} {n:the} cost?", "Wie viel {n/kosten} {n:the}?", 500,
        n=(*things(f"{THINGS}|food|drink|dish"),
           *(n for n in described("clothes|furniture")
             if n.adjective and n.adjective.target != "teuer")))
    add("{n:the} {n/cost} {k} euros.", "{n:the} {n/kosten} {k} Euro.", 500,
        n=things("furniture|device|instrument|owned"), k=(*amounts(60, 300, 5),
                                                          *amounts(310, 990, 10)))
    add("{n:the} {n/cost} {k} euros.", "{n:the} {n/kosten} {k} Euro.", 300,
        n=things("clothes|thing", "device"), k=(*amounts(10, 30), *amounts(35, 120, 5)))
    add("{n:the} {n/cost} {k} euros.", "{n:the} {n/kosten} {k} Euro.", 150,
        n=things("dish|count read"), k=amounts(2, 19))
    add("I would like {n:measure}, please.", "Ich möchte {n:measure}, bitte.", 60,
        n=things("drink"))
    add("I would like {n:a}.", "Ich möchte {n:a acc}.", 60, n=things("count food|dish"))
    add("Can I have {n:a}, please?", "Kann ich bitte {n:a acc} haben?", 100,
        n=(*things("count food|dish"), *things("thing", "gift")))
    add("Would you like {n:measure}?", "Möchtest du {n:measure}?", 30, n=things("drink"))
    add("Would you like {n:measure}, {x}?", "Möchten Sie {n:measure}, {x}?", 60,
        n=things("drink"), x=[Pair(*person.vocative) for person in FORMAL if person.vocative[1]])
    add("{s} {s/drink} {n:bare} with {m:bare}.", "{s} {s/trinken} {n:bare acc} mit {m:bare}.", 150,
        s=ANY, n=things("hot"), m=[n for n in things("drink mass|grocery mass")
                                   if n.noun.source in ("milk", "sugar")])
    add("{s} {s/drink} {n:bare} without sugar.", "{s} {s/trinken} {n:bare acc} ohne Zucker.", 60,
        s=ANY, n=things("hot"))
    add("Thank you for {n:the}.", "Danke für {n:the acc}.", 150,
        n=(*things("gift"), *described("gift")))
    add("The present is for {k:my}.", "Das Geschenk ist für {k:my acc}.", 60, k=kin)
    add("This is a letter from {k:my}.", "Das ist ein Brief von {k:my dat}.", 60, k=kin)
    add("I am going to the party with {k:my}.", "Ich gehe mit {k:my dat} auf die Party.", 40, k=kin)

    # Where things and people are
    add("Where {n/be} {n:my}?", "Wo {n/sein} {n:my}?", 150,
        n=(*things("lose|clothes|owned|thing"), *described("clothes")))
    add("Where {n/be} {n:the}?", "Wo {n/sein} {n:the}?", 150, n=things("town|room|thing|lose"))
    add("{n:the} {n/be} {p} {f:the}.", "{n:the} {n/liegen} {p} {f:the dat}.", 500,
        n=things("lie"), p=prepositions[:3], f=things("on"))
    add("{n:the} {n/be} {p} {f:the}.", "{n:the} {n/stehen} {p} {f:the dat}.", 300,
        n=things("stand"), p=prepositions[:1] + prepositions[2:], f=things("on", "carpet"))
    add("{n:the} {n/be} {p} {f:the}.", "{n:the} {n/sein} {p} {f:the dat}.", 200,
        n=things("pet"), p=prepositions, f=things("on"))
    add("Put {n:the} on {f:the}.", "Leg {n:the acc} auf {f:the acc}.", 300,
        n=things("lie"), f=things("on"))
    add("Put {n:the} on {f:the}.", "Stell {n:the acc} auf {f:the acc}.", 150,
        n=things("stand"), f=things("on"))
    add("{n:the} is in {f:the}.", "{n:the} ist in {f:the dat}.", 200, n=things("lose|pet",
        "plural|plural-en"), f=(*things("room"), *described("room")))
    add("{n:the} is sleeping {p} {f:the}.", "{n:the} schläft {p} {f:the dat}.", 100,
        n=things("pet"), p=prepositions, f=things("on"))
    add("Is there {n:a} near here?", "Gibt es hier in der Nähe {n:a acc}?", 150,
        n=(*things("town"), *described("town")))
    add("There is {n:a} in the city.", "In der Stadt gibt es {n:a acc}.", 150, n=described("town"))
    add("There is no {n:bare} in the village.", "Im Dorf gibt es {n:no acc}.", 60, n=things("town"))
    add("There are many {n:plural} here.", "Hier gibt es viele {n:plural acc}.", 80,
        n=things("town|animal|nature"))
    add("How do I get to {n:the}?", "Wie komme ich zu {n:the dat}?", 60, n=things("town"))
    add("{n:the} is next to {m:the}.", "{n:the} ist neben {m:the dat}.", 200,
        n=things("town"), m=things("town"))
    add("{s} {s/live} in {n:a}.", "{s} {s/wohnen} in {n:a dat}.", 300, s=ANY,
        n=(*described("home"), *described("region count")))
    add("I live with {k:my}.", "Ich wohne bei {k:my dat}.", 40, k=things("family"))
    add("Who is {n:the} with {m:the}?", "Wer ist {n:the} mit {m:the dat}?", 300,
        n=[p for p in people if {"male", "female"} & p.noun.tags], m=described("clothes", "plural"))
    add("{s} {s/come} from {p}.", "{s} {s/kommen} aus {p}.", 300, s=ANY, p=origins())
    add("Do you come from {p}?", "Kommst du aus {p}?", 40, p=origins())
    return table
# fmt: on


def origins() -> list[Pair]:
    """Where people come from: "in der Schweiz" gives "aus der Schweiz"."""
    return [
        Pair(place.at[0].removeprefix("in "), place.at[1].removeprefix("in "))
        for tag in ("city", "country")
        for place in places(tag)
    ]
