"""Messages of programs: entries without a translation get one, and nothing else changes."""

import pytest
from text_document_checks import check_hostile, fuzz, shouted, texts

from mt.documents.document import DocumentError, Segment
from mt.documents.gettext import WIDTH, read_po

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
ENTRIES = [
    '\n#, fuzzy, c-format\nmsgid "One %d"\nmsgstr "x"\n',
    '\nmsgid "%d x"\nmsgid_plural "%d xs"\nmsgstr[0] ""\nmsgstr[1] ""\n',
    '\nmsgctxt "c"\nmsgid ""\n"A text with\\n"\n"lines and <b>words</b>\\n"\n"New"\nmsgstr ""\n',
    '\n#~ msgid "o"\n#~ msgstr "p"\n', '\nmsgid "done"\nmsgstr "fertig"\n',
    'msgid "<a href=\\"x\\">L</a>"\r\nmsgstr ""\r\n', HEADER,
]  # fmt: skip
BITS = ['msgid "a"\n', 'msgstr ""\n', '"', "\\", "#, fuzzy\n", "#~ ", "\n", "\n\n", "# c\n", "\0",
        'msgid_plural "x"\n', 'msgstr[0] ""\n', 'msgctxt "c"\n', '"x"\n', "\r\n", "é"]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("", ""),
        (HEADER, HEADER),
        ('# c\n#: f.c:1\nmsgid "Open %s"\nmsgstr ""\n',
         '# c\n#: f.c:1\nmsgid "Open %s"\nmsgstr "OPEN %S"\n'),
        ('msgid "a"\nmsgstr "fertig"\n', 'msgid "a"\nmsgstr "fertig"\n'),
        ('msgid "a"\nmsgstr ""\nmsgid "b"\nmsgstr ""',
         'msgid "a"\nmsgstr "A"\nmsgid "b"\nmsgstr "B"\n'),
        ('msgctxt "keep"\nmsgid "a"\nmsgstr ""\n', 'msgctxt "keep"\nmsgid "a"\nmsgstr "A"\n'),
        ('msgid "Na\\303\\257ve \\x63af\\xc3\\xa9 \\\\303"\nmsgstr ""\n',
         'msgid "Na\\303\\257ve \\x63af\\xc3\\xa9 \\\\303"\nmsgstr "NAÏVE CAFÉ \\\\303"\n'),
        ('msgid "_Save"\nmsgstr ""\nmsgid "Save &as…"\nmsgstr ""\n',
         'msgid "_Save"\nmsgstr "_SAVE"\nmsgid "Save &as…"\nmsgstr "&SAVE AS…"\n'),
        ('msgid "5 _saved"\nmsgstr ""\n', 'msgid "5 _saved"\nmsgstr "5 _SAVED"\n'),
        ('msgid "snake_case, R&D, a &amp; b"\nmsgstr ""\n',
         'msgid "snake_case, R&D, a &amp; b"\nmsgstr "SNAKE_CASE, R&D, A &AMP; B"\n'),
        ('msgid "a\\n"\nmsgstr ""\n', 'msgid "a\\n"\nmsgstr "A\\n"\n'),
        ('msgid ""\n"a \\"b\\"\\n"\n"C\\tc\\\\"\nmsgstr ""\n',
         'msgid ""\n"a \\"b\\"\\n"\n"C\\tc\\\\"\nmsgstr ""\n"A \\"B\\"\\n"\n"C\\tC\\\\"\n'),
        ('msgid "%d a"\nmsgid_plural "%d as"\nmsgstr[0] ""\nmsgstr[1] ""\nmsgstr[2] ""\n',
         'msgid "%d a"\nmsgid_plural "%d as"\nmsgstr[0] "%D A"\nmsgstr[1] "%D AS"\n'
         'msgstr[2] "%D AS"\n'),
        ('msgid "a"\nmsgid_plural "as"\nmsgstr[0] "x"\nmsgstr[1] ""\n',
         'msgid "a"\nmsgid_plural "as"\nmsgstr[0] "x"\nmsgstr[1] "AS"\n'),
        ('#, fuzzy\nmsgid "a"\nmsgstr ""\n', '#, fuzzy\nmsgid "a"\nmsgstr ""\n'),
        ('#, fuzzy\n#~ msgid "a"\n#~ msgstr "b"\nmsgid "c"\nmsgstr ""\n',
         '#, fuzzy\n#~ msgid "a"\n#~ msgstr "b"\nmsgid "c"\nmsgstr "C"\n'),
        ('msgid "a <b>c</b>"\r\nmsgstr ""\r\n', 'msgid "a <b>c</b>"\r\nmsgstr "A <b>C</b>"\r\n'),
        ('msgid "12"\nmsgstr ""\n', 'msgid "12"\nmsgstr ""\n'),
    ],
)  # fmt: skip
def test_empty_translations_are_filled_and_the_rest_stays(source: str, rendered: str) -> None:
    document = read_po(source.encode())
    assert document.render(document.segments) == source.encode()
    assert shouted(document).removesuffix("\n") == rendered.removesuffix("\n")


def test_a_message_that_goes_on_in_the_next_line_is_one_segment() -> None:
    source = b'msgid "Copies the\\nfiles here.\\n\\nThen ends.\\n"\nmsgstr ""\n'
    assert texts(read_po(source)) == ["Copies the files here.", "Then ends."]


def test_a_long_translation_is_cut_into_lines() -> None:
    text = "word " * 40 + "end"
    rendered = read_po(b'msgid "a"\nmsgstr ""\n').render([Segment(text)]).decode()
    lines = rendered.splitlines()[1:]
    assert lines[0] == 'msgstr ""'
    assert max(map(len, lines)) <= WIDTH
    assert "".join(line.strip('"') for line in lines[1:]) == text
    again = read_po(rendered.replace("msgid", "msgctxt", 1).encode())
    assert list(again.segments) == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"text\n", "line 1 is no line of a PO file"),
        (b'msgid "a"\nmsgstr "\n', "line 2 is no line"),
        (b'msgid "a"b"\n', "line 1 is no line"),
        (b'"a"\n', "line 1 is no line"),
        (b'msgid "a"\nmsgid "b"\n', "line 2 has a second msgid"),
        (HEADER.replace("UTF-8", "ISO-8859-1").encode(), "ISO-8859-1, which lacks .*msgconv"),
        (HEADER.replace("UTF-8", "hex").encode(), "is in hex, which lacks"),
        (HEADER.encode() + b"\xff", "is not valid UTF-8"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        read_po(data)


@pytest.mark.parametrize(("label", "encoding"), [("CHARSET", "utf-8"), ("windows-1252", "cp1252")])
def test_the_header_names_the_encoding(label: str, encoding: str) -> None:
    source = HEADER.replace("UTF-8", label) + 'msgid "„a“"\nmsgstr ""\n'
    document = read_po(source.encode(encoding))
    assert document.render(document.segments).decode(encoding) == source
    assert document.render([Segment("ä")]).decode(encoding).endswith('msgstr "ä"\n')


def test_any_input_keeps_its_bytes() -> None:
    fuzz(read_po, ENTRIES, BITS)


@pytest.mark.parametrize(
    "unit", ['msgid "a"\nmsgstr ""\n\n', '"', "\\", '"a"\n', 'msgid "', "#, fuzzy\n", "\n", "<a",
             "a ", '#, fuzzy\nmsgid "a"\nmsgstr ""\n'],
)  # fmt: skip
def test_hostile_files_end_soon(unit: str) -> None:
    text = unit * (50_000 // len(unit))
    for data in (text, f'msgid "{text}"\nmsgstr ""\n', f'msgid ""\n{text}'):
        check_hostile(read_po, data.encode())


@pytest.mark.parametrize(
    ("flag", "source", "translation", "is_written"),
    [
        ("c-format", "%d of %s", "%d von %s", True),
        ("c-format", "%d of %s", "von %s %d", False),
        ("c-format", "%s", "% % s", False),
        ("c-format", "100%% of %s", "100%% von %s", True),
        ("c-format", "%2$s of %1$d", "%1$d von %2$s", True),
        ("python-format", "%(a)s of %(b)d", "%(b)d von %(a)s", True),
        ("python-format", "%(a)s", "%%(a)s", False),
        ("no-c-format", "%d of %s", "von %s %d", True),
        ("fuzzy-free", "%d of %s", "von %s %d", True),
    ],
)
def test_a_message_keeps_its_directives_or_stays_without_a_translation(
    flag: str, source: str, translation: str, is_written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    document = read_po(f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n'.encode())
    if not document.segments:  # no word beside the directives
        return
    rendered = document.render([Segment(translation)]).decode()
    assert rendered.endswith(f'msgstr "{translation if is_written else ""}"\n')
    assert bool(caplog.records) != is_written


@pytest.mark.parametrize(
    "text",
    ["See http://x.org/?q=foo&lang=en", "{_count} files", "%(_name)s is new", "Use $_GET here",
     "See /usr/_local", "Use `_start` here", "Drag&drop files", "_not_ found", "_my_var is",
     "&lt; a", "Tom & Mary", "_One _two", "a_b", "_%s"],
)  # fmt: skip
def test_other_signs_are_no_shortcuts(text: str) -> None:
    document = read_po(f'msgid "{text}"\nmsgstr ""\n'.encode())
    translated = [Segment("Ein Text", segment.tags) for segment in document.segments]
    rendered = document.render(translated).decode()
    assert "_Ein" not in rendered
    assert "&Ein" not in rendered


PLURAL = '#, c-format\nmsgid "One %s file"\nmsgid_plural "%d %s files"\n'


@pytest.mark.parametrize(
    ("translations", "forms"),
    [
        (["Eine %s Datei", "%d %s Dateien"], ["Eine %s Datei", "%d %s Dateien"]),
        (["One %s file", "%d %s Dateien"], ["One %s file", "%d %s Dateien"]),
        (["Eine %s Datei", "%s %d Dateien"], ["", ""]),
        (["One %s file", "%d %s files"], ["", ""]),
    ],
)
def test_all_forms_of_a_plural_are_filled_or_none(
    translations: list[str], forms: list[str]
) -> None:
    document = read_po(f'{PLURAL}msgstr[0] ""\nmsgstr[1] ""\n'.encode())
    rendered = document.render([Segment(text) for text in translations]).decode()
    expected = "".join(f'msgstr[{i}] "{form}"\n' for i, form in enumerate(forms))
    assert rendered == PLURAL + expected
