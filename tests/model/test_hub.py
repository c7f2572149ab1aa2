"""MarianMT models by their name on the hub, with a stand-in for it and transformers as oracle."""

import errno
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from conftest import PAIRS, Done
from hub_server import Hub
from marian_files import transformers, write_marian

from mt import import_marian
from mt.inference.translator import Translator
from mt.model import checkpoint, hub, marian_import
from mt.model.model_path import resolve_model_path

REPO = "Helsinki-NLP/opus-mt-en-de"
LINES = [source for source, _ in PAIRS]
CARD = """---
language:
- en
- de
tags:
- translation
license: cc-by-4.0
---
# A model
"""
NEEDED = {*marian_import.REQUIRED, *marian_import.OPTIONAL, "model.safetensors"}


@pytest.fixture(scope="module")
def marian_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the settings of OPUS-MT: only bad_words_ids keeps pad out of a translation."""
    folder = write_marian(tmp_path_factory.mktemp("hub") / "opus")
    model = transformers.MarianMTModel.from_pretrained(folder)
    pad = model.config.pad_token_id
    model.final_logits_bias[0, pad] = 3
    model.generation_config.update(bad_words_ids=[[pad]], num_beams=3, renormalize_logits=True)
    model.save_pretrained(folder)
    (folder / "README.md").write_text(CARD)
    return folder


@pytest.fixture
def files(marian_folder: Path) -> dict[str, bytes]:
    content = {path.name: path.read_bytes() for path in marian_folder.iterdir()}
    return content | {"pytorch_model.bin": b"a pickle", "tf_model.h5": b"large"}


def use(monkeypatch: pytest.MonkeyPatch, url: str, cache: Path) -> None:
    values = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(cache),
    }
    for name, value in values.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
        for module in (huggingface_hub.file_download, huggingface_hub.hf_api):  # before version 1.0
            monkeypatch.setattr(module, name, value, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    set_offline(monkeypatch, False)


def set_offline(monkeypatch: pytest.MonkeyPatch, offline: bool) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    # Before version 1.0 the client's open sessions would not notice.
    getattr(huggingface_hub.utils, "reset_sessions", lambda: None)()


@pytest.fixture
def served(
    files: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Hub]:
    """The hub with REPO, for a user who has nothing yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MT_CACHE", str(tmp_path / "cache"))
    with Hub({REPO: {"main": files}}).serve() as running:
        use(monkeypatch, running.url, tmp_path / "hub-cache")
        yield running


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    return lambda: use(monkeypatch, "http://127.0.0.1:9", tmp_path / "hub-cache")  # discard's port


def converted(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("models/*/*/config.json"))


def test_a_model_by_name_translates_as_transformers_does(
    served: Hub, marian_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    unreachable: Callable[[], None],
) -> None:  # fmt: skip
    translator = Translator.load(REPO, "cpu")
    commit = served.commit(REPO, "main")
    folder = tmp_path / "cache" / "models" / "Helsinki-NLP--opus-mt-en-de" / str(commit)
    assert caplog.messages == [
        f"{REPO} (en to de) fetched from the hub, licence cc-by-4.0, kept in {folder}"
    ]
    assert set(served.fetched()) == NEEDED
    assert len(served.fetched()) == len(NEEDED)
    assert translator.options.beam_size == 3
    oracle = transformers.MarianMTModel.from_pretrained(marian_folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(marian_folder)
    batch = tokens(LINES, return_tensors="pt", padding=True)
    for beam_size in (1, 4):
        results = translator.translate(LINES, beam_size=beam_size, alpha=0, max_length=40)
        generated = oracle.generate(
            **batch, num_beams=beam_size, do_sample=False, max_new_tokens=40,
            length_penalty=0.0, forced_eos_token_id=None,
        )  # fmt: skip
        texts = tokens.batch_decode(generated, skip_special_tokens=True)
        assert [result.text for result in results] == [" ".join(text.split()) for text in texts]
        assert len(set(texts)) > 10
    link = f"{served.url}/{REPO}/tree/{commit}"
    facts = {
        "imported from": REPO, "commit": commit, "link": link, "licence": "cc-by-4.0",
        "languages on its card": "en, de",
    }  # fmt: skip
    assert checkpoint.load(folder).config["training"] == facts
    card = (folder / "README.md").read_text()
    assert all(f"- {name}: {text}\n" in card for name, text in facts.items())

    caplog.clear()
    served.requests.clear()
    for name in (REPO, f"{REPO}@main"):
        assert resolve_model_path(name) == folder
    unreachable()
    again = Translator.load(REPO, "cpu").translate(LINES[:2], beam_size=1, max_length=20)
    assert [result.text for result in again]
    assert served.requests == []
    assert caplog.messages == []


def test_the_program_fetches_in_one_line_and_needs_the_hub_only_once(
    served: Hub, tmp_path: Path, files: dict[str, bytes]
) -> None:
    environment = {
        **os.environ, "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
        "PYTHONPATH": str(Path(import_marian.__file__).parents[1]),
    }  # fmt: skip

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True
        )

    first = run("-m", "mt.translate", "--model", REPO, "--max-length", "9", "A bear.")
    assert first.returncode == 0, first.stderr
    assert len(first.stdout.splitlines()) == 1
    [line] = first.stderr.splitlines()  # no bar
    assert line.startswith(f"mt.translate: {REPO} (en to de) fetched from the hub, licence cc-by")
    served.requests.clear()
    second = run(
        "-c", "import sys; from mt import translate; status = translate.main(sys.argv[1:]);"
        "sys.exit(status or 'huggingface_hub' in sys.modules)",
        "--model", REPO, "--max-length", "9", "A bear.",
    )  # fmt: skip
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")
    assert served.requests == []


def test_older_weights_are_fetched_only_where_there_are_no_others(
    served: Hub, files: dict[str, bytes], marian_folder: Path, tmp_path: Path
) -> None:
    weights = transformers.MarianMTModel.from_pretrained(marian_folder).state_dict()
    torch.save(weights, tmp_path / "weights")
    files["pytorch_model.bin"] = (tmp_path / "weights").read_bytes()
    del files["model.safetensors"], files["README.md"]
    out = resolve_model_path(REPO)
    expected = NEEDED - {"model.safetensors", "README.md"} | {"pytorch_model.bin"}
    assert set(served.fetched()) == expected
    marian_import.convert(marian_folder, tmp_path / "direct")
    assert checkpoint.digest(out) == checkpoint.digest(tmp_path / "direct")
    assert checkpoint.load(out).config["training"]["licence"] == "not stated"


def test_revisions_are_kept_apart_and_one_commit_is_converted_once(
    served: Hub, files: dict[str, bytes], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.repos[REPO] |= {"v1": files, "refs/pr/7": files | {"README.md": b"other"}}
    main = resolve_model_path(REPO)
    assert resolve_model_path(f"{REPO}@v1") == main
    assert resolve_model_path(f"{REPO}@{main.name}") == main
    assert len(caplog.messages) == 1
    other = resolve_model_path(f"{REPO}@refs/pr/7")
    assert (other.parent, other.name) == (main.parent, served.commit(REPO, "refs/pr/7"))
    assert len(converted(tmp_path)) == 2
    # What is there is used until it is removed.
    served.repos[REPO]["main"] = files | {"README.md": b"newer"}
    assert resolve_model_path(REPO) == main
    (main.parent / "main.commit").write_text("")
    assert resolve_model_path(REPO).name == served.commit(REPO, "main") != main.name


def test_two_programs_fetch_once(served: Hub, caplog: pytest.LogCaptureFixture) -> None:
    paths: list[Path] = []
    threads = [
        threading.Thread(target=lambda: paths.append(resolve_model_path(REPO))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(paths) == 3
    assert len(set(paths)) == len(caplog.messages) == 1
    assert sorted(served.fetched()) == sorted(NEEDED)


def test_without_the_hub_what_hf_download_has_fetched_is_used(
    served: Hub, unreachable: Callable[[], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for file in sorted(NEEDED - {"source.spm", "README.md"}):
        huggingface_hub.hf_hub_download(REPO, file)
    set_offline(monkeypatch, True)
    with pytest.raises(ConnectionError, match="cannot be fetched"):  # a file is missing
        resolve_model_path(REPO)
    set_offline(monkeypatch, False)
    huggingface_hub.hf_hub_download(REPO, "source.spm")
    unreachable()
    assert resolve_model_path(REPO).name == served.commit(REPO, "main")
    assert len(converted(tmp_path)) == 1


def without(name: str) -> Callable[[Hub, dict[str, bytes]], Any]:
    return lambda served, files: files.pop(name)


def refusing(status: int, code: str) -> Callable[[Hub, dict[str, bytes]], Any]:
    return lambda served, files: served.answers.update({REPO: (status, code)})


def containing(**changes: object) -> Callable[[Hub, dict[str, bytes]], Any]:
    """With a changed config.json."""

    def change(served: Hub, files: dict[str, bytes]) -> None:
        files["config.json"] = json.dumps(json.loads(files["config.json"]) | changes).encode()

    return change


def with_file(name: str, content: bytes) -> Callable[[Hub, dict[str, bytes]], Any]:
    return lambda served, files: files.update({name: content})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("gone/model", None, "gone/model: no such folder, and no such model at http.*; if it is "
         "private, log in with `hf auth login` or set HF_TOKEN"),
        (REPO, refusing(401, "RepoNotFound"), "no such folder, and no such model at http"),
        (REPO, refusing(403, "GatedRepo"), f"access is restricted: ask for it at http.*/{REPO}, "
         "then log in"),
        (f"{REPO}@v9", None, f"{REPO}@v9: {REPO} has no revision 'v9'"),
        ("a--b/c..d", None, "a--b/c..d: not a name of the hub: "),
        (REPO, refusing(500, ""), "cannot be fetched from http.*: .*500.*; fetch it elsewhere with "
         f"`hf download {REPO} --local-dir FOLDER`, and name that FOLDER"),
        (REPO, without("config.json"), "not a MarianMT model: it has no config.json"),
        (REPO, without("source.spm"), "not a MarianMT model: it has no source.spm"),
        (REPO, lambda served, files: (files.pop("model.safetensors"),
                                      files.pop("pytorch_model.bin")),
         "not a MarianMT model: it has no model.safetensors nor pytorch_model.bin"),
        (REPO, without("tokenizer_config.json"), "opus-mt-en-de: .*does not say its languages; "),
        (REPO, containing(model_type="bart"), f"error: {REPO}: config.json: not of a Marian model"),
        (REPO, containing(d_model=10**12), f"{REPO}: config.json: d_model=1000000000000: must be"),
        (REPO, containing(decoder_layers=5), "encoder_layers and decoder_layers are not equal"),
        (REPO, with_file("generation_config.json", b'{"num_beams": 1000}'), "num_beams=1000: must"),
        (REPO, with_file("model.safetensors", b"nothing"), f"{REPO}: model.safetensors: damaged"),
        (REPO, with_file("vocab.json", b"[" * 10**5), f"{REPO}: vocab.json: not JSON: nested too"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_said_in_a_line(
    served: Hub,
    files: dict[str, bytes],
    run_translate: Callable[..., Done],
    tmp_path: Path,
    name: str,
    change: Callable[[Hub, dict[str, bytes]], Any] | None,
    message: str,
) -> None:
    if change:
        change(served, files)
    assert_refused(run_translate("--model", name, "A bear."), message)
    assert converted(tmp_path) == []
    weights = {"model.safetensors", "pytorch_model.bin"} & set(served.fetched())
    assert not weights or "config.json: " not in message  # not fetched for another kind of model


def assert_refused(done: Done, message: str) -> None:
    assert (done.code, done.out) == (2, "")
    [line] = done.err.splitlines()
    assert re.search(message, line), line
    assert len(line) < 500


def test_without_a_network_it_is_said_what_to_do(
    served: Hub,
    unreachable: Callable[[], None],
    run_translate: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what_to_do = f"fetch it elsewhere with `hf download {REPO} --local-dir FOLDER`, and name that"
    unreachable()
    message = f"{REPO}: no such folder, and it cannot be fetched from http://127.0.0.1:9: .*; "
    assert_refused(run_translate("--model", REPO, "A bear."), message + what_to_do)
    set_offline(monkeypatch, True)
    message = f"cannot be fetched .*HF_HUB_OFFLINE.*; {what_to_do}"
    assert_refused(run_translate("--model", REPO, "A bear."), message)


@pytest.mark.parametrize("free", [10, 10**12])
def test_a_full_disk_is_said(
    served: Hub,
    run_translate: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    free: int,
) -> None:
    """Little space that the client sees, and space that is gone while it writes."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    download = huggingface_hub.file_download
    usage = type("usage", (), {"free": free})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(download, "http_get", full if free > 10 else download.http_get)
    message = "hub-cache: no space left on device" if free > 10 else f"{REPO}: Not enough free disk"
    assert_refused(run_translate("--model", REPO, "A bear."), message)
    assert converted(tmp_path) == []


def test_no_space_for_the_converted_model_is_said(
    served: Hub,
    run_translate: Callable[..., Done],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("mt.model.checkpoint.safetensors.torch.save", full)
        assert_refused(run_translate("--model", REPO, "A bear."), "no space left on device")
    assert converted(tmp_path) == []
    assert run_translate("--model", REPO, "--max-length", "5", "A bear.").code == 0


def test_evaluation_and_export_take_a_name(
    served: Hub, run_module: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "test.en").write_text("A bear.\nThe bear.\n")
    (tmp_path / "test.de").write_text("Ein Bär.\nDer Bär.\n")
    done = run_module(
        "mt.evaluate", f"model_path={REPO}@main", "src=test.en", "ref=test.de",
        "search.beam_size=1", "hydra.run.dir=report", "device=cpu",
    )  # fmt: skip
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert report["model_config"]["training"]["licence"] == "cc-by-4.0"
    done = run_module("mt.export", "--to", "huggingface", REPO, "out")
    assert done.code == 2
    assert "an imported model: convert the one it comes from" in done.err
    done = run_module("mt.translate", "--engine", "ctranslate2", "--model", "gone/model", "A bear.")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "gone/model: not written by mt.export" in done.err
    assert not any("gone" in request for request in served.requests)


def test_a_name_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="x: not a name of the hub, which is ORG/NAME or ORG/NAME"):
        hub.converted_from_hub("x", tmp_path)
