"""Inline tags in translations: given links, fuzzed input, and the bundled model."""

import functools
import itertools
import random
import re
import time
from collections import Counter

import pytest

from mt.documents.document import Segment, Tag, TagKind
from mt.documents.tags import place_tags, translate_segments, with_tags
from mt.documents.word_links import WORD, Link, segment_links, word_spans
from mt.inference import translation
from mt.inference.translation import Translation
from mt.inference.translator import Translator

KINDS = {"": TagKind.OPEN, "/": TagKind.CLOSE}


def segment(markup: str) -> Segment:
    """A segment from a text with tags: <1> and </1> around element 1; <2/> is an empty one."""
    text, tags = "", []
    for part in re.split(r"(</?\d+/?>)", markup):
        if match := re.fullmatch(r"<(/?)(\d+)(/?)>", part):
            kind = TagKind.EMPTY if match[3] else KINDS[match[1]]
            tags.append(Tag(kind, int(match[2]), len(text)))
        else:
            text += part
    return Segment(text, tuple(tags))


def markup(segment: Segment) -> str:
    text, last = "", 0
    for kind, number, position in segment.tags:
        written = {TagKind.OPEN: "<{}>", TagKind.CLOSE: "</{}>", TagKind.EMPTY: "<{}/>"}[kind]
        text += segment.text[last:position] + written.format(number)
        last = position
    return text + segment.text[last:]


def links_of(source: str, target: str, numbers: str) -> list[Link]:
    """Links between words from their numbers: "0-0 1-2:0.5"."""
    words = [[match.span() for match in WORD.finditer(text)] for text in (source, target)]
    links = re.findall(r"(\d+)-(\d+)(?::(\S+))?", numbers)
    return [(words[0][int(s)], words[1][int(t)], float(weight or 1)) for s, t, weight in links]


@pytest.mark.parametrize(
    ("source", "links", "expected"),
    [
        # Elements stand by their words, in the order of the translation.
        ("I saw the <0>old house</0>.", "0-0 1-4 2-1 3-2 4-3",
         "Ich das <0>alte Haus</0> sah."),
        ("<0>When</0> did you <1>lose</1> it?", "0-0 1-1 2-2 3-4 4-3",
         "<0>Wann</0> hast du es <1>verloren</1>?"),
        ("It is <0>my</0> <1>own</1> car", "0-0 1-1 2-3 3-2 4-4",
         "Es ist <1>eigenes</1> <0>mein</0> Auto"),
        # Nested elements stay nested, and no child leaves its parent.
        ("The <0>red <1>car</1></0> is new.", "0-0 1-1 2-2 3-3 4-4",
         "Das <0>rote <1>Auto</1></0> ist neu."),
        ("<0><1>new</1> <2>car</2></0> here", "0-2 1-1 2-0",
         "hier <0><2>Auto</2> <1>neues</1></0>"),
        ("<0><1>car</1></0> here", "0-1 1-0", "hier <0><1>Auto</1></0>"),
        ("<0>all of it <1>go</1></0> now", "0-0 1-0 2-1 3-4 4-3",
         "<0>alles <1>das</1></0> andere jetzt gehe"),
        # The whole text
        ("<0>All <1>of it</1>.</0>", "", "<0>Das <1>alles</1>.</0>"),
        ("<0/><1>All of it</1><2/>", "", "<0/><1>Das alles</1><2/>"),
        ("<0>Yes!</0>", "", "<0>Ja doch, natürlich!</0>"),
        ("<0>Yes</0>!", "", "<0>Ja doch</0>!"),
        # The parts of a verb are apart: the best span, not all that is between them.
        ("She <0>called him up</0> today.", "0-0 1-1:0.9 2-2 3-4:0.7 4-3",
         "Sie <0>rief ihn</0> heute an."),
        ("She <0>gave up</0> her job.", "0-0 1-1:0.9 1-4:0.6 2-4:0.3 3-2 4-3",
         "Sie hat ihren Job <0>aufgegeben</0>."),
        ("If so, <0>we will stay</0>.", "0-0 1-1 2-3 3-2 4-4",
         "Wenn ja, <0>werden wir bleiben</0>."),
        # A word without links between linked ones belongs to them; at the edge it does not.
        ("I go <0>to Berlin</0> now", "0-0 1-1 2-2 3-4 4-6",
         "Ich gehe <0>nach dem Berlin</0> da nun"),
        ("<0>Do you</0> know?", "1-1 2-2", "<0>Dass du</0> weißt?"),
        # Nothing is linked: the word beside the place where it stood
        ("Who is <0>it</0> then?", "0-0 1-1 3-3", "Wer ist <0>das</0> denn?"),
        ("<0>Do</0> you like it?", "1-1 2-0 3-2", "<0>Magst</0> du es?"),
        ("one <0>two</0> three four", "", "eins <0>zwei</0> drei vier"),
        # Two elements share one word, and a third is left none.
        ("<0>address</0> <1>book</1>", "0-0:0.6 1-0:0.4", "<0>Adressbuch</0><1></1>"),
        ("<0>address</0> <1>book</1> here", "0-0:0.6 1-0:0.4 2-1", "<0>Adressbuch</0> <1>hier</1>"),
        # Sides of blanks, quotes and other marks
        ('He asked:<0> "Where?"</0>', "0-0 1-1 2-2", "Er fragte:<0> „Wo?“</0>"),
        ('He asked: "<0>Where?</0>"', "0-0 1-1 2-2", "Er fragte: „<0>Wo?</0>“"),
        ("<0>Note:</0> closed", "0-0 1-1", "<0>Hinweis:</0> geschlossen"),
        ("<0>Note</0>: closed", "0-0 1-1", "<0>Hinweis</0>: geschlossen"),
        ("He said <0>he came</0>", "0-0 1-1 2-2 3-3", "Er sagte, <0>er kam</0>"),
        ("Come <0>here.</0>", "0-1 1-0", "<0>Hier</0> kommen."),
        ("all (<0>soon</0>)", "0-0 1-1", "alles (<0>bald</0>)"),
        ("all <0>(soon)</0>", "0-1 1-0", "<0>(Bald)</0> alles"),
        ("Oh<0>!</0> Yes", "0-0 1-1", "Ach<0>!</0> Ja"),
        ("Oh<0>, </0>yes", "0-0 1-1", "Ach<0> </0>ja"),
        # An amount has its sign on the other side.
        ("The <0>$20</0> ticket.", "0-0 1-2 2-1", "Das Ticket <0>20 $</0>."),
        ("Only <0>$</0><1>20</1> here", "0-0 1-1 2-2", "Nur <0></0><1>20</1> $ hier"),
        ("Only $<0>20</0> here", "0-0 1-1 2-2", "Nur <0>20</0> $ hier"),
        ("<0>$50+</0> here", "0-0 1-1", "<0>50+ $</0> hier"),
        ("<0>$1.5M</0> here", "0-0 1-1", "<0>1.5M</0> $ hier"),
        ("Only <0>€1,299.00</0>, <1>50%</1> off", "0-0 1-1 2-2",
         "Nur <0>1.299,00 €</0>, <1>50 %</1> ab"),
        # Words that are cut
        ("<0>H</0>ello there", "0-0 1-1", "<0>Hallo</0> da"),
        ("H<0>2</0>O and CO<1>2</1> <2>now</2>", "0-2 1-1 2-0 3-3",
         "CO<1>2</1> und H<0>2</0>O <2>nun</2>"),
        ("x<0>1</0>y<1>2</1>z is", "0-1 1-0", "ist x<0>1</0>y<1>2</1>z"),
        ("the un<0>believ</0>able", "0-0 1-1", "das <0>Unglaubliche</0>"),
        ("You<0/>Tube is", "0-1 1-0", "Ist You<0/>Tube"),
        # Empty tags
        ("a house<0/>, which fell", "0-0 1-1 2-2 3-3", "ein Haus<0/>, das fiel"),
        ("He has read the book<0/>.", "0-0 1-1 2-4 3-2 4-3", "Er hat das Buch<0/> gelesen."),
        ("I saw it.<0/> We go.", "0-0 1-1 1-3 2-2 3-4 4-5", "Ich habe es gesehen.<0/> Wir gehen."),
        ("It ends.<0/>", "0-0 1-1", "Das endet.<0/>"),
        ("<0/> Press now", "0-1 1-0", "<0/>Nun drücken"),
        ("Press the <0/>button now", "0-3 1-0 2-1 3-2", "Den <0/>Knopf nun drücken"),
        ("Press <0/>“it” now", "0-2 1-0 2-1", "<0/>„Es“ nun drücken"),
        ("one<0/><1/> two", "0-1 1-0", "Zwei eins<0/><1/>"),
        ("one<0></0><1/> two", "0-1 1-0", "Zwei eins<0></0><1/>"),
        ("The <0>old house</0><1/> fell", "0-0 1-2 2-1 3-3", "Das <0>Haus alte</0><1/> fiel"),
        ("an <0>old<1/> house</0> fell", "0-1 1-3 2-2 3-0", "Fiel ein <0>Haus altes<1/></0>"),
        ("one two<0/> three", "0-0 2-2", "eins zwei<0/> drei"),
        ("one<0/> two", "1-1", "eins<0/> zwei"),
        ("one<0/> two three", "", "eins<0/> zwei drei"),
        # No words, no text
        ("<0>!</0>?", "", "<0>!</0>?!"),
        ("→ <0/>", "", "nach<0/>"),
        ("<0>one</0> <1/>", "", "<0></0><1/>"),
        ("一<0>二</0>三", "0-2 1-0 2-1", "<0>two</0> three one"),
        ("two <0>three</0> one", "0-1 1-2 2-0", "一二<0>三</0>"),
    ],
)  # fmt: skip
def test_tags_stand_by_the_words_they_stood_by(source: str, links: str, expected: str) -> None:
    before, target = segment(source), segment(expected)
    placed = place_tags(before, target.text, links_of(before.text, target.text, links))
    assert markup(placed) == expected


def test_tags_of_a_text_that_stays_as_it_is_stay_where_they_are() -> None:
    source = segment("<0>A</0>B, <1>c<2/> </1>")
    assert place_tags(source, source.text, [((0, 2), (4, 5), 1.0)]) == source


def test_links_that_fit_no_words_are_left_out() -> None:
    source = segment("a <0>b</0>")
    nonsense = [((0, 1), (70, 80), 1.0), ((9, 3), (-4, -2), 1.0), ((2, 3), (0, 1), float("nan"))]
    links = [*nonsense, ((2, 3), (0, 1), 0.5)]
    assert markup(place_tags(source, "c d", links)) == "<0>c</0> d"


@pytest.mark.parametrize(
    "source", ["<0>a", "a</0>", "<0>a<1>b</0></1>", "<0>a</1>", "a</0><0>b"]
)  # fmt: skip
def test_tags_that_are_not_nested_are_refused(source: str) -> None:
    with pytest.raises(ValueError, match="element"):
        place_tags(segment(source), "b", [])


def test_tags_out_of_order_are_refused() -> None:
    tags = (Tag(TagKind.EMPTY, 0, 2), Tag(TagKind.EMPTY, 1, 1))
    for wrong in (tags, (Tag(TagKind.EMPTY, 0, 4),)):
        with pytest.raises(ValueError, match="not in the text"):
            place_tags(Segment("abc", wrong), "b", [])


# Fuzzed input

ALPHABET = [
    "a",
    "der",
    "x2",
    "Haus",
    " ",
    " ",
    " ",
    ",",
    ".",
    "„",
    "“",
    "-",
    "ß",
    "漢",
    "\u0301",
    "😀",
]


def fuzzed(rng: random.Random) -> tuple[Segment, str, list[Link]]:
    text, target = ("".join(rng.choices(ALPHABET, k=rng.randrange(60))) for _ in "12")
    tags: list[Tag] = []
    path: list[int] = []
    number = 0
    for place in sorted(rng.choices(range(len(text) + 1), k=rng.randrange(24))):
        kind = rng.choice(list(TagKind))
        if kind is TagKind.CLOSE and path:
            tags.append(Tag(kind, path.pop(), place))
        elif kind is not TagKind.CLOSE:
            tags.append(Tag(kind, number, place))
            path += [number] * (kind is TagKind.OPEN)
            number += 1
    tags += [Tag(TagKind.CLOSE, n, len(text)) for n in reversed(path)]
    words = [[m.span() for m in WORD.finditer(t)] or [(0, 1)] for t in (text, target)]
    links = [
        (rng.choice(words[0]), rng.choice(words[1]), rng.random()) for _ in range(rng.randrange(30))
    ]
    spans = [(rng.randrange(-3, 99), rng.randrange(-3, 99)) for _ in range(rng.randrange(6))]
    links += [(one, other, rng.choice([-1, 0, 3])) for one, other in itertools.pairwise(spans)]
    return Segment(text, tuple(tags)), target, links


def parents(tags: tuple[Tag, ...]) -> dict[int, int]:
    """The parent of each element. Fails unless the tags are balanced and nested."""
    parent_of, path = {}, [-1]
    for kind, number, _ in tags:
        if kind is TagKind.CLOSE:
            assert path.pop() == number
        else:
            assert number not in parent_of
            parent_of[number] = path[-1]
            path += [number] * (kind is TagKind.OPEN)
    assert path == [-1]
    return parent_of


def spans(tags: tuple[Tag, ...]) -> dict[int, list[int]]:
    positions: dict[int, list[int]] = {}
    for _, number, position in tags:
        positions.setdefault(number, []).append(position)
    return positions


def test_fuzzed_tags_stay_balanced_and_nested_and_none_is_lost() -> None:
    rng = random.Random(29)
    begin = time.process_time()
    for _ in range(1000):
        source, target, links = fuzzed(rng)
        placed = place_tags(source, target, links)
        assert placed.text == target
        kinds = [Counter((t.kind, t.number) for t in s.tags) for s in (source, placed)]
        assert kinds[0] == kinds[1]
        assert parents(placed.tags) == parents(source.tags)
        positions = [tag.position for tag in placed.tags]
        assert positions == sorted(positions)
        assert all(0 <= position <= len(target) for position in positions)
        before, after = spans(source.tags), spans(placed.tags)
        for number, span in before.items():
            if span == [0, len(source.text)] and source.text:
                assert after[number] == [0, len(target)]
        originals = {source.text[slice(*m.span())] for m in WORD.finditer(source.text)}
        for word in WORD.finditer(target):  # only words that are in the source too may be cut
            cut = any(word.start() < position < word.end() for position in positions)
            assert not cut or word[0] in originals
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("length", [600, 10_000])
def test_long_and_deeply_nested_segments_take_no_long_time(length: int) -> None:
    words = " ".join(f"w{i}" for i in range(length))
    spans = [match.span() for match in WORD.finditer(words)]
    flat = tuple(
        Tag(kind, n, place)
        for n, span in enumerate(spans)
        for kind, place in zip((TagKind.OPEN, TagKind.CLOSE), span, strict=True)
    )
    deep = tuple(
        [Tag(TagKind.OPEN, n, 2 * n) for n in range(length)]
        + [Tag(TagKind.CLOSE, n, len(words)) for n in reversed(range(length))]
    )
    target = words.upper()
    rng = random.Random(0)
    links = [(rng.choice(spans), span, 1.0) for span in spans]
    for tags in (flat, deep):
        begin = time.process_time()
        for own in (links, []):
            placed = place_tags(Segment(words, tags), target, own)
            assert parents(placed.tags) == parents(tags)
        assert time.process_time() - begin < 10


# Words in texts


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("Where do you live?", ["Where", "do", "you", "live", "?"],
         ["Where", "do", "you", "live", "?"]),
        ("a  b\u00a0a", ["a", "b", "a"], ["a", "b", "a"]),
        ("Wait … ﬁne ½", ["Wait", "...", "fine", "1⁄2"], ["Wait", "…", "ﬁne", "½"]),
        ("cafe\u0301 café", ["café", "café"], ["cafe\u0301", "café"]),
        ("soft\u00adhyphen ＦＵＬＬ", ["softhyphen", "FULL"], ["soft\u00adhyphen", "ＦＵＬＬ"]),
        ("THE STRASSE ENDS", ["The", "straße", "ends"], ["THE", "STRASSE", "ENDS"]),
        ("an 😀 icon", ["an", "<unk>", "icon"], ["an", None, "icon"]),
        ("one two", ["three", "two", "one"], [None, "two", None]),
        ("", ["a"], [None]),
        ("a", [], []),
        ("a b", ["", "b"], [None, "b"]),
    ],
)  # fmt: skip
def test_words_are_found_in_the_text_they_are_of(
    text: str, words: list[str], expected: list[str | None]
) -> None:
    spans = word_spans(text, words)
    assert [span and text[slice(*span)] for span in spans] == expected
    places = [span for span in spans if span]
    assert all(one[1] <= other[0] for one, other in itertools.pairwise(places))


# Translation


def test_segments_without_tags_inside_need_no_attention() -> None:
    calls = []

    def translate(texts: list[str], attention: bool = False) -> list[Translation]:
        calls.append((texts, attention))
        return [Translation(text, text.upper(), 0.0, 1, ()) for text in texts]

    sources = ["a b", "<0>a b</0>", "a <0>b</0>", "<0/>c"]
    done = translate_segments([segment(source) for source in sources], translate)
    assert [markup(one) for one in done] == ["A B", "<0>A B</0>", "A <0>B</0>", "<0/>C"]
    assert calls == [(["a b", "a b", "c"], False), (["a b"], True)]
    assert translate_segments([], translate) == []


def test_links_need_an_alignment() -> None:
    with pytest.raises(ValueError, match="attention=True"):
        segment_links("a", "b", [translation.TranslatedPart(("▁a",), ("▁b",), ())])


def test_the_bundled_model(everyday: Translator) -> None:
    expected = [
        ("The <0>red <1>car</1></0> belongs to my brother.",
         "Das <0>rote <1>Auto</1></0> gehört meinem Bruder."),
        ("Do you know <0>where</0> the station is?", "Weißt du, <0>wo</0> der Bahnhof ist?"),
        ("I have <0>never</0> seen such a big dog.", "<0>nie</0>"),
        ("If it rains, <0>we will stay at home</0>.",
         "Wenn es regnet, <0>bleiben wir zu Hause</0>."),
        ("<0>When</0> did you lose your <1>keys</1>?", "<1>Schlüssel</1> verloren?"),
        ("My brother has bought a new house<0/>.", "Haus<0/> gekauft."),
        ("You must <0>switch off</0> the light before you leave.", "<0>ausschalten</0>"),
        ("The water is <0>very</0> cold today.<1/> We stay at home.", ".<1/> Wir"),
        ("<0>Thank you for your letter.</0>", "<0>"),
        ("Your order <0>4711</0> is <1>here</1>.", "<0>4711</0>"),
    ]  # fmt: skip
    translate = functools.partial(everyday.translate, split=True)
    sources = [segment(source) for source, _ in expected]
    texts = [markup(done) for done in translate_segments(sources, translate)]
    right = [part in text for (_, part), text in zip(expected, texts, strict=True)]
    assert sum(right) >= 8, texts
    assert texts[8].startswith("<0>")
    assert texts[8].endswith("</0>")


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Name", "Name ist.", "Name ist"),
        ("What you like", "Was mögen Sie?", "Was mögen Sie"),
        ("What do you like?", "Was mögen Sie?", "Was mögen Sie?"),
        ("He said (yes.)", "Er sagte ja.", "Er sagte ja."),
        ("Apples, pears etc", "Äpfel, Birnen usw.", "Äpfel, Birnen usw."),
        ("On the 3rd", "Am 3.", "Am 3."),
        ("Format A4", "Format A4.", "Format A4"),
        ("And then …", "Und dann.", "Und dann."),
    ],
)
def test_no_mark_is_added_at_the_end(source: str, target: str, expected: str) -> None:
    assert with_tags(Segment(source), target, ()).text == expected
