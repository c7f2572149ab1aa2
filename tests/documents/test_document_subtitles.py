"""Subtitles: the text of the cues is translated, numbers and times stay."""

import pytest
from text_document_checks import check, check_hostile, fuzz, shouted, texts

from mt.documents.document import DocumentError, Segment
from mt.documents.subtitles import LINE_WIDTH, read_srt, read_vtt

TIMES = "00:00:01,000 --> 00:00:02,500\n"
BITS = ["1\n", TIMES, "00:01.000 --> 00:02.000 line:0\n", "<i>", "</i>", "{\\an8}", "- ", "word ",
        "\n", "\n\n", "\r\n", "WEBVTT\n", "NOTE x\n", "STYLE", "<c.x>", "</c>", "<v Bob>", "&amp;",
        "<", "-->", "\0", "{", "12", "é", " ", "<00:01.000>"]  # fmt: skip
CUES = [
    f"1\n{TIMES}Hello\nthere.\n\n", f"2\r\n{TIMES}- <i>Who?</i>\r\n- {{\\an8}}Me.\r\n\r\n",
    "00:01.000 --> 00:02.000\n<v Bob>Hi &amp; <c.x>bye</c>\n\n", "NOTE a\nb\n\n",
]  # fmt: skip


def srt(text: str) -> str:
    return f"1\n{TIMES}{text}\n"


def vtt(text: str) -> str:
    return f"WEBVTT\n\n00:01.000 --> 00:02.000 align:start\n{text}\n"


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        (srt("Hi there"), srt("HI THERE")),
        (srt("Two\nlines"), srt("TWO\nLINES")),
        (srt("{\\an8}<i>a</i> b"), srt("{\\an8}<i>A</i> B")),
        (srt('<font color="red">a <b>b</b></font>\nc'),
         srt('<font color="red">A <b>B</b></font>\nC')),
        (srt("- Who?\n- Me\nalone."), srt("- WHO?\n- ME\nALONE.")),
        (srt("a < b & 3"), srt("A < B & 3")),
        (srt("a") + "2\n00:03 --> 00:04\nb\n",
         srt("A") + "2\n00:03 --> 00:04\nB\n"),
        (srt("1984"), srt("1984")),
        (srt("10:30 -> 11:00: coffee"), srt("10:30 -> 11:00: COFFEE")),
        (srt("a") + "\n" + srt("b"), srt("A") + "\n" + srt("B")),
        (f"{TIMES}a\n2\n{TIMES}b", f"{TIMES}A\n2\n{TIMES}B"),
        (srt("a\n\nb"), srt("A\n\nB")),
        ("\ufeff" + srt("a\nb").replace("\n", "\r\n"),
         "\ufeff" + srt("A\nB").replace("\n", "\r\n")),
        (f"1\n{TIMES}\n2\n{TIMES}{TIMES}", f"1\n{TIMES}\n2\n{TIMES}{TIMES}"),
    ],
)  # fmt: skip
def test_srt_keeps_what_is_no_text(source: str, rendered: str) -> None:
    document = read_srt(source.encode())
    assert document.render(document.segments) == source.encode()
    assert shouted(document) == rendered


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        (vtt("Hi there"), vtt("HI THERE")),
        (vtt("<v Bob>a &amp; <c.x>b</c>"), vtt("<v Bob>A &amp; <c.x>B</c>")),
        (vtt("a <00:01.500>b"), vtt("A <00:01.500>B")),
        (vtt("<v Bob>a b</v>\n<v.x Ann>c</v>"), vtt("<v Bob>A B</v>\n<v.x Ann>C</v>")),
        ("WEBVTT - keep\nX: keep\n\nNOTE keep\nthis\n\nSTYLE\n::cue{}\n\nREGION\nid:keep\n\nkeep\n"
         "00:01.000 --> 00:02.000\na\n\n\nkeep\n",
         "WEBVTT - keep\nX: keep\n\nNOTE keep\nthis\n\nSTYLE\n::cue{}\n\nREGION\nid:keep\n\nkeep\n"
         "00:01.000 --> 00:02.000\nA\n\n\nkeep\n"),
        ("\ufeff" + vtt("a"), "\ufeff" + vtt("A")),
        ("WEBVTT", "WEBVTT"),
    ],
)  # fmt: skip
def test_vtt_keeps_what_is_no_text(source: str, rendered: str) -> None:
    document = read_vtt(source.encode())
    assert document.render(document.segments) == source.encode()
    assert shouted(document) == rendered


def test_a_cue_is_one_segment_and_each_speaker_has_his_own() -> None:
    assert texts(read_srt(srt("I saw\n<i>the</i> house.").encode())) == ["I saw the house."]
    assert texts(read_srt(srt("- Who?\n– Me\nalone.").encode())) == ["Who?", "Me alone."]
    voices = vtt("<v Bob>Where are you</v>\n<v Ann>At home</v>")
    assert texts(read_vtt(voices.encode())) == ["Where are you", "At home"]
    named = srt("TOM: Who?\nMR. ÅNEIL: Me\nalone. NB: not in\nROOM 3: no")
    assert texts(read_srt(named.encode())) == [
        "TOM: Who?", "MR. ÅNEIL: Me alone. NB: not in ROOM 3: no",
    ]  # fmt: skip
    assert texts(read_srt(srt("♪ La la ♪\n♪ La\nla ♪").encode())) == ["♪ La la ♪", "♪ La la ♪"]


@pytest.mark.parametrize(
    ("lines", "words", "expected"),
    [
        (1, 3, 1),
        (2, 3, 2),  # as many lines as there were
        (1, 12, 2),  # more where they would be too long
        (2, 30, 4),
        (2, 1, 1),
    ],
)
def test_lines_are_broken_anew(lines: int, words: int, expected: int) -> None:
    document = read_srt(srt("\n".join(["a"] * lines)).encode())
    rendered = document.render([Segment(" ".join(["word"] * words))]).decode()
    rows = rendered.splitlines()[2:]
    assert len(rows) == expected
    assert max(map(len, rows)) <= LINE_WIDTH
    assert max(map(len, rows)) - min(map(len, rows)) <= len("word ") * (1 + expected // 3)


def test_a_translation_makes_no_new_tags_and_times() -> None:
    [cue] = read_vtt(vtt("a").encode()).segments
    document = read_vtt(vtt("a").encode())
    assert document.render([Segment("<b> --> &")]).decode() == vtt("&lt;b&gt; --&gt; &amp;")
    document = read_srt(srt("a").encode())
    assert document.render([Segment("1:00:00,0 --> 1:00:01,0")]).decode() == srt(
        "1:00:00,0 -> 1:00:01,0"
    )
    assert cue == Segment("a")


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (read_srt, b"", "has no subtitle"),
        (read_srt, b"text", "has no subtitle"),
        (read_srt, b"\xfcber", "is not valid UTF-8"),
        (read_vtt, b"", "is no WebVTT"),
        (read_vtt, srt("a").encode(), "is no WebVTT"),
        (read_vtt, b"WEBVTTX", "is no WebVTT"),
        (
            read_srt,
            (srt("a") + "2\n00:03,0 -> 00:04,0\nb\n").encode(),
            "^line 5 is no line of times",
        ),
    ],
)
def test_what_is_none_is_refused(read, data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read(data)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_other_encodings_have_a_byte_order_mark(encoding: str) -> None:
    document = check(read_srt, ("\ufeff" + srt("Grüße")).encode(encoding))
    assert document is not None
    assert document.render([Segment("é")]) == ("\ufeff" + srt("é")).encode(encoding)


def test_any_input_keeps_its_bytes() -> None:
    fuzz(read_srt, CUES, BITS)
    fuzz(read_vtt, CUES, BITS, start="WEBVTT\n\n")


@pytest.mark.parametrize(
    "unit",
    [TIMES, "<i>", "a ", "{\\", "<", "1\n", "\n", "- a\n", "a", "\0", "<aaaa", "- ", " ", "&",
     "<00:01.000>", "\r", "00:01-", "-"],
)  # fmt: skip
def test_hostile_files_end_soon(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    check_hostile(read_srt, srt(text).encode())
    check_hostile(read_vtt, vtt(text).encode())
