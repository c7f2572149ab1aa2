"""Documents that are fetched later: LibreTranslate's and DeepL's interfaces, before a stand-in."""

import asyncio
import logging
from collections.abc import Iterator

import httpx
import pytest
from live_server import running, wait_for
from serving_helpers import StandIn

from mt.serving import deepl_documents, kept_documents
from mt.serving.app import create_app
from mt.serving.documents import DocumentProgress, Documents, TranslatedFile
from mt.serving.kept_documents import KeptDocuments
from mt.serving.limits import ApiKeys, Limits

FILE = {"file": ("letter.md", "A *nice* house.\n")}
ENGLISH = {"source": "en", "target": "de"}


@pytest.fixture
def stand_in() -> StandIn:
    return StandIn()


@pytest.fixture
def client(stand_in: StandIn) -> Iterator[httpx.Client]:
    app = create_app(stand_in, Limits(documents=1, drain_seconds=0.5))
    with running(app) as server, httpx.Client(base_url=server.address) as client:
        yield client


@pytest.fixture
def closed() -> Iterator[httpx.Client]:
    app = create_app(StandIn(), keys=ApiKeys(["secret"]))
    with running(app) as server, httpx.Client(base_url=server.address) as client:
        yield client


# LibreTranslate


@pytest.mark.parametrize(
    ("languages", "text"),
    [
        (ENGLISH, "A *NICE* HOUSE.\n"),
        ({"source": "auto", "target": "de"}, "A *NICE* HOUSE.\n"),
        ({"source": "en", "target": "en"}, "A *nice* house.\n"),
        ({"source": "auto", "target": "en"}, "A *nice* house.\n"),
    ],
)
def test_a_translated_file_can_be_fetched(
    client: httpx.Client, languages: dict[str, str], text: str
) -> None:
    answer = client.post("/translate_file", files=FILE, data=languages).json()
    url = answer.pop("translatedFileUrl")
    assert answer == {}
    assert url.startswith(f"{client.base_url}/download_file/")
    for _ in range(2):
        fetched = client.get(url)
        assert fetched.text == text
        saved = f'attachment; filename="letter.{languages["target"]}.md"'
        assert fetched.headers["content-disposition"] == saved


@pytest.mark.parametrize(
    ("name", "fields", "status", "message"),
    [
        ("a.md", {"source": "fr", "target": "de"}, 400, "fr is not supported"),
        ("a.md", {"source": "de", "target": "en"}, 400, "en is not available as a target"),
        ("a.md", {"source": "en"}, 400, "target: is missing"),
        ("a.xyz", ENGLISH, 415, "a.xyz: this kind of file is not read"),
        ("a.docx", ENGLISH, 400, "a.docx: is not an Office document"),
    ],
)
def test_a_mistake_is_told(
    client: httpx.Client, name: str, fields: dict[str, str], status: int, message: str
) -> None:
    response = client.post("/translate_file", files={"file": (name, "Guten Tag")}, data=fields)
    assert response.status_code == status
    assert response.json()["error"].startswith(message)


def test_what_is_not_there_is_not_found(client: httpx.Client) -> None:
    response = client.get("/download_file/ABC")
    assert response.status_code == 404
    assert response.json() == {"error": "there is no such file, or no longer"}


def test_the_log_has_no_address_of_a_file(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mt.serving.access")
    url = client.post("/translate_file", files=FILE, data=ENGLISH).json()["translatedFileUrl"]
    client.get(url)
    wait_for(lambda: "/download_file/… 200" in caplog.text)
    assert url.rpartition("/")[2] not in caplog.text


def test_the_settings_name_the_formats(client: httpx.Client) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"]
    assert {".docx", ".odt", ".srt"} <= set(settings["supportedFilesFormat"])
    assert ".csv" not in settings["supportedFilesFormat"]  # its columns must be named


def test_libretranslate_wants_a_key(closed: httpx.Client) -> None:
    for key, status in ((None, 403), ("wrong", 403), ("secret", 200)):
        fields = ENGLISH | ({"api_key": key} if key else {})
        assert closed.post("/translate_file", files=FILE, data=fields).status_code == status


# DeepL


def upload(client: httpx.Client, **fields: str) -> dict[str, str]:
    response = client.post("/v2/document", files=FILE, data={"target_lang": "DE"} | fields)
    assert response.status_code == 200, response.text
    return response.json()


def status(client: httpx.Client, document: dict[str, str]) -> dict[str, object]:
    url = f"/v2/document/{document['document_id']}"
    return client.post(url, json={"document_key": document["document_key"]}).json()


def wait_until(client: httpx.Client, document: dict[str, str], wanted: str) -> dict[str, object]:
    wait_for(lambda: status(client, document)["status"] == wanted)
    return status(client, document)


def test_a_document_is_sent_asked_for_and_fetched_once(
    client: httpx.Client, stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepl_documents, "WAIT_SECONDS", 0.05)
    stand_in.hold.set()
    document = upload(client, source_lang="EN")
    assert document.keys() == {"document_id", "document_key"}
    translating = wait_until(client, document, "translating")
    assert translating == {
        "document_id": document["document_id"], "status": "translating", "seconds_remaining": 10
    }  # fmt: skip
    url, key = f"/v2/document/{document['document_id']}/result", {}
    key["document_key"] = document["document_key"]
    early = client.post(url, json=key)
    assert early.status_code == 503
    assert early.json()["message"].startswith("the document is not translated yet")
    busy = client.post("/v2/document", files=FILE, data={"target_lang": "DE"})
    assert busy.status_code == 429
    stand_in.hold.clear()
    assert wait_until(client, document, "done")["billed_characters"] == 13
    fetched = client.post(url, data=key)
    assert fetched.text == "A *NICE* HOUSE.\n"
    assert fetched.headers["content-disposition"] == 'attachment; filename="letter.de.md"'
    assert client.post(url, json=key).status_code == 404


def test_a_wrong_key_finds_nothing(client: httpx.Client) -> None:
    document = upload(client)
    for end in ("", "/result"):
        for key in ("", "wrong", "ü", document["document_key"][:-1]):
            url = f"/v2/document/{document['document_id']}{end}"
            assert client.post(url, json={"document_key": key}).status_code == 404
        other = client.post(f"/v2/document/ABC{end}", json=document)
        assert other.json() == {"message": "there is no such document, or no longer"}


def test_what_goes_wrong_is_in_the_status(client: httpx.Client, stand_in: StandIn) -> None:
    response = client.post(
        "/v2/document", files={"file": ("a.docx", "x")}, data={"target_lang": "DE"}
    )
    told = wait_until(client, response.json(), "error")
    assert str(told["error_message"]).startswith("a.docx: is not an Office document")
    url = f"/v2/document/{told['document_id']}/result"
    asked = client.post(url, json={"document_key": response.json()["document_key"]})
    assert (asked.status_code, asked.json()["message"]) == (400, told["error_message"])
    stand_in.error = KeyError("secret")
    told = wait_until(client, upload(client), "error")
    assert told["error_message"] == "the server made a mistake, which its log describes"


def test_a_german_document_stays(client: httpx.Client) -> None:
    german = {"file": ("a.md", "Wo wohnst du denn jetzt, mein lieber Freund?")}
    response = client.post("/v2/document", files=german, data={"target_lang": "DE"})
    assert wait_until(client, response.json(), "done")["billed_characters"] == 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target_lang": "FR"}, "Value for 'target_lang' not supported."),
        ({"source_lang": "FR"}, "Value for 'source_lang' not supported."),
        ({"glossary_id": "x"}, "glossary_id: this server cannot do that"),
        ({"glossary_ids": "x,y"}, "glossary_ids: this server cannot do that"),
        ({"formality": "more"}, "formality: must be"),
        ({"output_format": "docx"}, "output_format: must be that of the file"),
    ],
)
def test_what_cannot_be_done_is_refused(
    client: httpx.Client, fields: dict[str, str], message: str
) -> None:
    response = client.post("/v2/document", files=FILE, data={"target_lang": "DE"} | fields)
    assert response.status_code == 400
    assert response.json()["message"].startswith(message)


def test_deepl_wants_a_key(closed: httpx.Client) -> None:
    for path in ("/v2/document", "/v2/document/ABC", "/v2/document/ABC/result"):
        assert closed.post(path).status_code == 403


# The store


def file(size: int) -> TranslatedFile:
    return TranslatedFile("a.md", b"x" * size, 1)


def keep(*sizes: int, seconds: float = 0) -> list[bool]:
    """Whether files of these sizes, which came one after the other, are there after a time."""

    async def add() -> list[bool]:
        kept = KeptDocuments(Documents(create_app(StandIn()).state.service))
        numbers = [kept.add(DocumentProgress(), file(size)) for size in sizes]
        assert len(set(numbers)) == len(sizes)
        assert all(len(number) == 32 for number in numbers)
        await asyncio.sleep(seconds)
        return [kept.get(number) is not None for number in numbers]

    return asyncio.run(add())


def test_the_oldest_go_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_documents, "KEPT_BYTES", 100)
    monkeypatch.setattr(kept_documents, "KEPT_FILES", 4)
    assert keep(50, 50) == [True, True]
    assert keep(50, 30, 30) == [False, True, True]
    assert keep(10, 10, 10, 10, 10) == [False, True, True, True, True]
    assert keep(10, 200) == [False, True]


def test_nothing_is_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_documents, "KEPT_SECONDS", 0.05)
    assert keep(10, seconds=0.1) == [False]


def test_a_server_that_stops_drops_what_is_under_way() -> None:
    stand_in = StandIn()
    stand_in.hold.set()
    app = create_app(stand_in, Limits(drain_seconds=0.5))
    with running(app) as server, httpx.Client(base_url=server.address) as client:
        upload(client)
        wait_for(lambda: stand_in.jobs)
    wait_for(stand_in.cancelled.is_set)
