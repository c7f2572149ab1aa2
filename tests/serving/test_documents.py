"""Documents in our own interface, in front of a stand-in engine that answers in capitals."""

import asyncio
import io
import json
import time
import zipfile
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from serving_helpers import StandIn, ask

from mt.documents.formats import EXTENSIONS
from mt.serving import documents
from mt.serving.app import create_app
from mt.serving.engine import DeadlineExceeded, Overloaded, TextTranslation
from mt.serving.limits import ApiKeys, Limits
from mt.serving.middleware import MOST_UPLOADS
from mt.serving.uploads import MEDIA_TYPES, attachment

URL = "/v1/documents"
SRT = "1\n00:00:00,000 --> 00:00:01,000\nHow <i>are</i> you?\n"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"


def docx(body: str = "<w:p><w:r><w:t>A house</w:t></w:r></w:p>", **parts: str) -> bytes:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            f'<Override PartName="/word/document.xml" ContentType="{TYPE}"/></Types>',
        )
        document = f'<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'
        archive.writestr("word/document.xml", document)
        for name, content in parts.items():
            archive.writestr(name, content)
    return output.getvalue()


def send(name: str, data: bytes | str, app: FastAPI | None = None, **fields: Any) -> httpx.Response:
    app = app or create_app(StandIn())
    return ask(app, "POST", URL, files={"file": (name, data)}, data=fields)


def message_of(response: httpx.Response) -> str:
    assert response.json().keys() == {"error"}
    message = response.json()["error"]["message"]
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("name", "data", "translated"),
    [
        ("a.srt", SRT, SRT.replace("How <i>are</i> you", "HOW <i>ARE</i> YOU")),
        ("a.html", "<p>One <b>two</b></p>", "<p>ONE <b>TWO</b></p>"),
        ("A.MD", "# Title\n\nSome *text*.\n", "# TITLE\n\nSOME *TEXT*.\n"),
        ("a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\nHi\n", None),
        ("a.po", 'msgid "House"\nmsgstr ""\n', 'msgid "House"\nmsgstr "HOUSE"\n'),
        (
            "a.txt",
            "  Dear Anna,\r\n\r\n- one\ttwo \n1984\n",
            "  DEAR ANNA,\r\n\r\n- ONE\tTWO \n1984\n",
        ),
        ("a.html", "", ""),
        ("a.md", "PK is no archive here.", "PK IS NO ARCHIVE HERE."),
    ],
)
def test_a_file_comes_back_translated(name: str, data: str, translated: str | None) -> None:
    response = send(name, data)
    assert response.status_code == 200, response.text
    assert response.text == (data.replace("Hi", "HI") if translated is None else translated)
    kind = MEDIA_TYPES[f".{name.rpartition('.')[2].lower()}"]
    charset = "; charset=utf-8" if kind.startswith("text/") else ""
    assert response.headers["content-type"] == kind + charset
    stem, _, extension = name.rpartition(".")
    saved = f'attachment; filename="{stem}.de.{extension}"'
    assert response.headers["content-disposition"] == saved


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        ("Größe".encode(), "; charset=utf-8"),
        ("Größe".encode("utf-16"), "; charset=utf-16"),
        ('<meta charset="latin-1">Größe'.encode("latin-1"), ""),
    ],
)
def test_the_type_of_a_text_says_how_it_is_encoded(data: bytes, charset: str) -> None:
    assert attachment("a.html", data).headers["content-type"] == f"text/html{charset}"


def test_an_office_file() -> None:
    response = send("letter.docx", docx())
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert b"<w:t>A HOUSE</w:t>" in archive.read("word/document.xml")


def test_every_format_has_a_media_type() -> None:
    assert MEDIA_TYPES.keys() == set(EXTENSIONS)


@pytest.mark.parametrize(
    ("sent", "saved"),
    [
        ("../../etc/x.md", 'filename="x.de.md"'),
        ("C:\\docs\\x.md", 'filename="x.de.md"'),
        ("a;b.md", """filename="a_b.de.md"; filename*=utf-8''a%3Bb.de.md"""),
        ("my page.md", 'filename="my page.de.md"'),
        ("Größe 1.md", """filename="Gr__e 1.de.md"; filename*=utf-8''Gr%C3%B6%C3%9Fe%201.de.md"""),
        ('a";\r\nX: y.md', """filename="a_22__0D_0AX: y.de.md"; filename*=utf-8''"""),
        ("a" * 1000 + ".md", 'filename="' + "a" * 147 + '....de.md"'),
        (".hidden.md", 'filename=".hidden.de.md"'),
    ],
)
def test_the_name_is_only_a_name(sent: str, saved: str) -> None:
    response = send(sent, "x")
    assert response.status_code == 200, response.text
    assert response.headers["content-disposition"].startswith("attachment; " + saved)
    assert "x" not in response.headers


def test_fields_reach_the_engine() -> None:
    stand_in = StandIn()
    app = create_app(stand_in)
    glossary = json.dumps({"house": ["Haus", "Heim"]})
    fields = {"keep": "true", "decimal": "german", "forbidden": ["alt", "kalt"], "split": "0"}
    assert send("a.md", "A house.", app, glossary=glossary, **fields).status_code == 200
    [job] = stand_in.jobs
    assert job.terms is not None
    assert job.terms.glossary is not None
    assert job.terms.glossary.entries["house"].targets == ("Haus", "Heim")
    assert (job.terms.keep, job.terms.decimal) == (True, "german")
    assert job.terms.forbidden == ("alt", "kalt")
    assert not job.split
    send("a.md", "A *nice* house.", app, glossary="", forbidden="")
    assert stand_in.jobs[1].terms is not None
    assert stand_in.jobs[1].terms.keep
    assert stand_in.jobs[1].split
    assert [job.options.attention for job in stand_in.jobs] == [False, True]


def test_columns_of_a_table() -> None:
    table = 'id,en,"a, b"\n1,Hi,you\n'
    assert send("a.csv", table, columns="en").text == 'id,en,"a, b"\n1,HI,you\n'
    assert send("a.csv", table, columns=["en=de", "a, b"]).text.endswith(",YOU,HI\n")
    records = '{"en": "Hi"}\n'
    assert send("a.jsonl", records, columns="en").text == '{"en": "HI"}\n'


def test_a_header_says_what_one_should_know_of_a_table() -> None:
    answer = send("a.csv", "en;größe\na;1\n;2\n", columns="en=größe")
    assert json.loads(answer.headers["Mt-Remarks"]) == [
        '1 of 2 rows have no text in "en" to translate',
        '1 of 2 rows have a text in "größe": it is replaced',
    ]
    assert "Mt-Remarks" not in send("a.csv", "en\na\n", columns="en").headers
    names = [f"{i}{'n' * 1000}" for i in range(40)]
    table = f"en;{';'.join(names)}\na{';x' * 40}\n"
    many = send("a.csv", table, columns=[f"en={name}" for name in names])
    assert 10 * 100 < len(many.headers["Mt-Remarks"]) < 3000


@pytest.mark.parametrize(
    ("name", "data", "fields", "status", "message"),
    [
        ("a.docx", b"PK\3\4nonsense", {}, 400, "a.docx: is damaged"),
        ("a.docx", b"%PDF-1.4", {}, 400, "a.docx: is a PDF"),
        ("a.md", b"\xff\xff", {}, 400, "a.md: is not valid UTF-8"),
        ("a.csv", b"a\nb\n", {}, 400, "a.csv: is a table"),
        ("a.csv", b"a\nb\n", {"columns": "c"}, 400, "a.csv: has no column"),
        ("a.md", b"x", {"columns": "c"}, 400, "a.md: has no columns"),
        ("a.pdf", b"%PDF-1.4", {}, 415, "a.pdf: this kind of file is not read: save it as .docx"),
        ("a.exe", b"MZ", {}, 415, "a.exe: this kind of file is not read: send .docx, .pptx"),
        ("a", b"x", {}, 415, "a: this kind"),
        ("a.md", b"x", {"glossary": "{"}, 400, "glossary: must be an object in JSON"),
        ("a.md", b"x", {"glossary": "[]"}, 400, "glossary: must be an object"),
        ("a.md", b"x", {"glossary": '{"a": "\\ud800"}'}, 400, "glossary: "),
        ("a.md", b"x", {"glossary": '{"a": ""}'}, 400, "a: a term must have"),
        ("a.md", b"x", {"glossary": "[" * 100_000}, 400, "glossary: must be an object in JSON"),
        ("a.md", b"x", {"glossary": '{"a": [1, 2]}'}, 400, "glossary: must be"),
        ("a.md", b"x", {"keep": "perhaps"}, 400, "keep: must be"),
        ("a.md", b"x", {"decimal": "x"}, 400, "decimal='x': must be"),
        ("a.md", b"x", {"nothing": "x"}, 400, "nothing: there is no such field"),
        ("a.md", b"x" * 5_250_000, {}, 413, "a.md: has 5,250,000 bytes: send at most 5,242,880"),
        ("a.md", b"x " * 100_001, {}, 413, "a.md: has 200,001 characters: send at most 200,000"),
        ("a.html", b"<b>" * 200_000, {}, 413, "a.html: has 400,000 pieces of markup"),
        ("a.csv", b"en" + b"," * 1_000_001, {}, 413, "a.csv: has 1,000,001 cells, more than"),
        ("a.tsv", b"en" + b"\t" * 1_000_001, {}, 413, "a.tsv: has 1,000,001 cells, more than"),
        ("a.docx", docx("<w:p/>" * 500_001), {}, 413, "a.docx: has 500,012 pieces"),
        ("a.docx", docx(x=" " * 52_500_000), {}, 400, "a.docx: would unpack"),
    ],
)  # fmt: skip
def test_a_mistake_is_told(
    name: str, data: bytes, fields: dict[str, Any], status: int, message: str
) -> None:
    response = send(name, data, **fields)
    assert response.status_code == status, response.text
    assert message_of(response).startswith(message)


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ({"data": {"split": "1"}}, 415, "send the request with Content-Type: multipart"),
        ({"json": {}}, 415, "send the request"),
        ({"files": {"other": ("a.md", "x")}}, 400, "file: is missing"),
        ({"files": {"file": ("", "x")}}, 400, "file: must be a file of the form"),
        ({"files": {"file": ("/", "x")}}, 400, "file: is missing"),
        ({"files": {"x": (None, "1"), "file": (None, "a")}}, 400, "file: must be a file"),
        ({"files": [("file", ("a.md", "x")), ("b", ("b.md", "x"))]}, 400, "b: must be text"),
        ({"files": [("file", ("a.md", "x")), ("file", ("b.md", "x"))]}, 400, "file: send one"),
        ({"files": [("a", ("a.md", "x")), ("b", ("b.md", "x"))]}, 400, "file: is missing"),
        ({"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data"}}, 400, "the"),
        ({"content": b"--x\r\nbroken",
          "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, "file: is"),
        ({"content": b'--x\r\nContent-Disposition: form-data; name="\\ud800"; filename="a.md"\r\n'
          b"\r\n\r\n--x--\r\n", "headers": {
              "content-type": "multipart/form-data; charset=unicode_escape; boundary=x"}},
         400, "file: is missing"),
    ],
)  # fmt: skip
def test_what_is_no_upload(request_: dict[str, Any], status: int, message: str) -> None:
    response = ask(create_app(StandIn()), "POST", URL, **request_)
    assert response.status_code == status, response.text
    assert message_of(response).startswith(message)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise ValueError(".docx needs the package lxml: pip install lxml")

    monkeypatch.setattr(documents, "read_document", read)
    response = send("a.docx", docx())
    assert response.status_code == 501
    assert message_of(response) == (
        "this server cannot do that: .docx needs the package lxml: pip install lxml"
    )


def test_a_key_is_asked_for() -> None:
    app = create_app(StandIn(), keys=ApiKeys(["secret"]))
    assert send("a.md", "x", app).status_code == 401
    response = ask(
        app, "POST", URL, files={"file": ("a.md", "x")}, headers={"Authorization": "Bearer secret"}
    )
    assert response.status_code == 200


# Blocks


def test_a_document_is_translated_in_blocks() -> None:
    stand_in = StandIn()
    text = "".join(f"Line {i} is here.\n\n" for i in range(100)) + "A long one. " * 1000 + "\n"
    response = send("a.md", text, create_app(stand_in))
    assert response.text == text.upper()
    assert len(stand_in.jobs) > 6
    assert all(len(job.texts) <= documents.BLOCK_TEXTS for job in stand_in.jobs)
    sizes = [sum(map(len, job.texts)) for job in stand_in.jobs]
    assert max(sizes) <= documents.BLOCK_CHARACTERS


class Busy(StandIn):
    """An engine whose jobs number ``full`` meet a full queue."""

    def __init__(self, *full: int) -> None:
        super().__init__()
        self.full = set(full)

    async def translate(self, job: Any, timeout: float) -> list[TextTranslation]:
        number = len(self.jobs)
        if number in self.full:
            self.jobs.append(job)
            raise Overloaded(7)
        return await super().translate(job, timeout)


def test_a_document_that_has_begun_waits_where_the_queue_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(documents, "RETRY_SECONDS", 0.01)
    text = "A line.\n\n" * 50
    response = send("a.md", text, create_app(Busy(1, 2)))
    assert response.text == text.upper()
    response = send("a.md", text, create_app(Busy(0)))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("error", "status"), [(DeadlineExceeded(), 504), (ValueError("bad"), 400), (KeyError(), 500)]
)
def test_what_goes_wrong_is_told_and_the_place_is_free_again(error: Exception, status: int) -> None:
    stand_in = StandIn()
    app = create_app(stand_in, Limits(documents=1))
    stand_in.error = error
    assert send("a.md", "x", app).status_code == status
    stand_in.error = None
    assert send("a.md", "x", app).status_code == 200


def test_it_must_be_done_in_time() -> None:
    stand_in = StandIn()
    stand_in.hold.set()
    response = send("a.md", "x", create_app(stand_in, Limits(document_seconds=0.05)))
    assert response.status_code == 504
    assert stand_in.cancelled.is_set()


def test_only_so_many_are_under_way_and_a_client_that_leaves_frees_its_place() -> None:
    stand_in = StandIn()
    app = create_app(stand_in, Limits(documents=2))

    async def check() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

            async def post() -> httpx.Response:
                return await client.post(URL, files={"file": ("a.md", "x")})

            stand_in.hold.set()
            running = [asyncio.ensure_future(post()) for _ in range(2)]
            while len(stand_in.jobs) < 2:
                await asyncio.sleep(0.01)
            refused = await post()
            assert refused.status_code == 429
            assert 1 <= int(refused.headers["retry-after"]) <= 60
            running[0].cancel()
            await asyncio.wait(running[:1])
            assert stand_in.cancelled.is_set()
            third = asyncio.ensure_future(post())
            while len(stand_in.jobs) < 3:
                await asyncio.sleep(0.01)
            stand_in.hold.clear()
            assert [(await r).status_code for r in (running[1], third)] == [200, 200]

    asyncio.run(check())


# Bodies


def test_only_routes_for_files_take_large_bodies() -> None:
    app = create_app(StandIn())
    large = {"files": {"file": ("a.md", b"x " * 90_000)}}
    assert ask(app, "POST", URL, **large).status_code == 200
    for path in ("/v1/translate", "/v2/document/x", "/translate"):
        assert ask(app, "POST", path, **large).status_code == 413
    response = ask(app, "POST", URL, files={"file": ("a.md", b"x" * 6_000_000)})
    assert response.status_code == 413


def test_only_so_many_large_bodies_are_in_memory() -> None:
    app = create_app(StandIn())

    async def check() -> None:
        sent = asyncio.Event()
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

            async def body() -> Any:
                yield b"x"
                await sent.wait()

            def post() -> Any:
                return asyncio.ensure_future(client.post(URL, content=body()))

            slow = [post() for _ in range(MOST_UPLOADS)]
            await asyncio.sleep(0.05)
            response = await client.post(URL, files={"file": ("a.md", "x")})
            assert response.status_code == 429
            assert response.headers["retry-after"] == "5"
            sent.set()
            assert {(await request).status_code for request in slow} == {415}
            response = await client.post(URL, files={"file": ("a.md", "x")})
            assert response.status_code == 200

    asyncio.run(check())


@pytest.mark.parametrize(
    ("url", "status", "scheme"),
    [(URL, 401, "Bearer"), ("/v2/document", 403, "DeepL-Auth-Key")],
)
def test_who_has_no_key_takes_no_place(url: str, status: int, scheme: str) -> None:
    app = create_app(StandIn(), keys=ApiKeys(["k"]))
    sent = asyncio.Event()

    async def body() -> Any:
        yield b"x"
        await sent.wait()

    async def check() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:

            def post(key: str) -> Any:
                headers = {"Authorization": f"{scheme} {key}"}
                return asyncio.ensure_future(client.post(url, content=body(), headers=headers))

            slow = [post("wrong") for _ in range(MOST_UPLOADS)]
            await asyncio.sleep(0.05)
            fields = {"target_lang": "DE"} if "v2" in url else {}
            headers = {"Authorization": f"{scheme} k"}
            files = {"file": ("a.md", "x")}
            response = await client.post(url, files=files, data=fields, headers=headers)
            assert response.status_code == 200
            sent.set()
            assert {(await request).status_code for request in slow} == {status}

    asyncio.run(check())


def test_many_mistakes_in_a_glossary_hold_nobody_up() -> None:
    app = create_app(StandIn())
    begin = time.process_time()
    glossary = '{"a": [' + "1," * 500_000 + "1]}"
    assert send("a.md", b"x", app, glossary=glossary).status_code == 400
    assert time.process_time() - begin < 1


def test_a_large_form_holds_nobody_up() -> None:
    app = create_app(StandIn())
    begin = time.monotonic()
    for data in (b"\r\n--" * 1_200_000, b"\r\n" * 2_500_000, b"\r" * 5_000_000):
        assert send("a.md", data, app).status_code == 413
    assert time.monotonic() - begin < 20
