"""Templates around people, time and weather: professions, languages, health, dates, trains."""

from __future__ import annotations

from collections.abc import Sequence

from . import english as en
from . import morphology as de
from .descriptions import qualities, things
from .grammar import Template
from .people import (
    ANY,
    ASKED,
    FEMALE_KIN,
    HE,
    MALE_KIN,
    ME,
    MEN,
    SHE,
    SINGLE,
    THEY,
    WE,
    WOMEN,
    YOU,
)
from .times import WEEKDAYS, amounts, clock, dated
from .words import Pair, Person, pairs, rows

YOUNG = ("Bruder", "Schwester", "Sohn", "Tochter", "Cousin", "Freund")


def professions(*people: Person, without: str = "") -> list[tuple[Person, Pair]]:
    """People, each with every profession: feminine for women, masculine for I, you and we."""
    return [
        (person, Pair(en.indefinite(title), female if person.key == "sie" else male))
        for person in people
        for title, male, female, _ in rows("professions")
        if title != without
    ]


def ages() -> list[tuple[Person, Pair]]:
    """People, each with every likely age: parents and bosses are not four."""
    young = (HE, SHE, *MEN, *WOMEN, *(p for p in MALE_KIN + FEMALE_KIN if p.noun in YOUNG))
    return [
        *((person, age) for person in young for age in amounts(2, 17)),
        *((person, age) for person in SINGLE for age in amounts(30, 79)),
        *((person, age) for person in young for age in amounts(18, 29)),
    ]


# fmt: off
def templates() -> list[Template]:
    """Build the table of templates around people, time and weather."""
    table: list[Template] = []

    def add(english: str, german: str, cap: int = 300, **slots: Sequence[object]) -> None:
        table.append(Template(english, german, slots, cap))

    kin = things("kin")
    family = [p for p in MALE_KIN + FEMALE_KIN if p.phrase and "family" in p.phrase.noun.tags]
    workers = (ME, HE, SHE, *MEN, *WOMEN, *family)

    # People
    add("{s} {s/be} {p}.", "{s} {s/sein} {p}.", 300, **{"s p": professions(YOU, *workers)})
    add("{s} {s/work} as {p}.", "{s} {s/arbeiten} als {p}.", 200,
        **{"s p": professions(*workers, without="student")})
    add("{s} {s/want} to become {p}.", "{s} {s/wollen} {p} werden.", 200,
        **{"s p": professions(*workers)})
    add("{s} {s/be} {k} years old.", "{s} {s/sein} {k} Jahre alt.", 400, **{"s k": ages()})
    add("How old {s/be} {s}?", "Wie alt {s/sein} {s}?", 60, s=ASKED)
    add("How {s/be} {s}?", "Wie geht es {s:dat}?", 20, s=(YOU, *MEN, *WOMEN, HE, SHE, THEY))
    add("How {k/be} {k:your}?", "Wie geht es {k:your dat}?", 40, k=kin)
    add("{k:my} {k/be} fine.", "{k:my dat} geht es gut.", 40, k=kin)
    add("{b:my} {b/hurt}.", "{b:my} {b/tun} weh.", 30, b=things("body"))
    for whose in ("his", "her", "your"):
        add(f"{{b:{whose}}} {{b/hurt}}.", f"{{b:{whose}}} {{b/tun}} weh.", 15, b=things("body"))
    add("My {n:bare plural} hurt.", "{n:my plural} tun weh.", 8,
        n=[b for b in things("body") if b.noun.source in
           ("knee", "arm", "leg", "foot", "hand", "tooth", "ear")])
    add("{s} {s/speak} {x}.", "{s} {s/sprechen} {x}.", 200, s=ANY, x=pairs("language"))
    add("{s} {s/do} not speak {x}.", "{s} {s/sprechen} kein {x}.", 150, s=ANY, x=pairs("language"))
    add("{s} {s/speak} a little {x}.", "{s} {s/sprechen} ein bisschen {x}.", 100,
        s=ANY, x=pairs("language"))
    add("{s/do} {s} speak {x}?", "{s/sprechen} {s} {x}?", 150, s=ASKED, x=pairs("language"))
    for sex, gender in (("male", "m"), ("female", "f")):
        pronoun = de.relative_pronoun(gender, "nom")
        add("{n:the} who lives next door is {k:my}.",
            f"{{n:the}}, {pronoun} nebenan wohnt, ist {{k:my}}.", 30,
            n=things(f"person {sex}", "young|kin"), k=things(f"kin {sex}"))
    for gender in ("m", "f", "n"):
        pronoun = de.relative_pronoun(gender, "acc")
        bought = [(n, a) for n, a in qualities("clothes|furniture|owned|device")
                  if n.gender == gender]
        add("{n:the} that {s} bought {n/be} {a}.",
            f"{{n:the}}, {pronoun} {{s}} gekauft {{s/haben}}, {{n/sein}} {{a}}.", 150,
            s=(ME, YOU, HE, SHE, WE, THEY, *MEN, *WOMEN), **{"n a": bought})

    # Time and weather
    add("It is {t}.", "Es ist {t}.", 200, t=clock())
    add("The {x} starts at {t}.", "{x} fängt um {t} an.", 250, t=clock(), x=pairs("event"))
    add("When does the {x} start?", "Wann fängt {x} an?", x=pairs("event"))
    for source, target, tail in (("leaves", "fährt", "ab"), ("arrives", "kommt", "an")):
        add(f"{{v:the}} {source} at {{t}}.", f"{{v:the}} {target} um {{t}} {tail}.", 150,
            t=clock(), v=things("transport", "fixed"))
    add("Today is {d}.", "Heute ist der {d}.", 150, d=dated("e"))
    add("{k:my}'s birthday is on {d}.", "{k:my} hat am {d} Geburtstag.", 200,
        k=things("kin", "plural"), d=dated("en"))
    add("The {x} is on {d}.", "{x} ist am {d}.", 150, d=dated("en"), x=pairs("event"))
    add("Today is {d}.", "Heute ist {d}.", d=[Pair(*day) for day in WEEKDAYS])
    add("The {x} is on {d}.", "{x} ist am {d}.", 60, x=pairs("event"),
        d=[Pair(*day) for day in WEEKDAYS])
    weather = pairs("weather")
    add("It is {w} {t}.", "{t} ist es {w}.", 100, w=weather, t=pairs("somewhere"))
    add("It was {w} yesterday.", "Gestern war es {w}.", w=weather)
    add("Tomorrow it will be {w}.", "Morgen wird es {w}.", w=weather)
    return table
# fmt: on
