"""Runs on Ray: the result of one process, whatever the actors and whichever of them die."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import PAIRS
from corpus_files import Deadly, Upper, own_token, read, run, start_ray, write

from mt import corpus
from mt.corpora.files import Block
from mt.corpora.models import Models, ScorePairs, Translate
from mt.corpora.operations import Filter
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator

pytest.importorskip("ray")
from mt.corpora.actors import Actors, ray

LINES = [english for english, _ in PAIRS] * 2


@pytest.fixture
def cluster() -> None:
    start_ray()


@pytest.mark.usefixtures("cluster")
def test_the_program_translates_as_one_process(
    model_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.txt", [{"en": line} for line in LINES[:31]])
    write(tmp_path / "b.txt", [{"en": line} for line in LINES[31:]])
    status = corpus.main(
        [
            *("translate", "--input", f"{tmp_path}/*.txt", "--output", f"{tmp_path}/out.jsonl"),
            *("--column", "en=de", "--model", str(model_folder), "--device", "cpu"),
            *("--beam-size", "2", "--actors", "2", "--threads", "1", "--block-rows", "8"),
        ]
    )
    assert (status, capsys.readouterr().err) == (0, "mt.corpus: 72 of 72 rows written\n")
    translator = Translator.load(model_folder, "cpu", workers=1)
    expected = [result.text for result in translator.translate(LINES, beam_size=2)]
    assert read(tmp_path / "out.jsonl") == [
        {"en": english, "de": german} for english, german in zip(LINES, expected, strict=True)
    ]


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_actors_that_are_killed_do_no_harm(tmp_path: Path) -> None:
    """Two of ten blocks kill their actor; its second try is computed, the others only once."""
    source = write(tmp_path / "in.txt", [{"text": f"line {n}"} for n in range(20)])
    operation = Deadly(folder=str(tmp_path))
    run(operation, source, tmp_path / "out.txt", engine=Actors(actors=2, threads=1), block_rows=2)
    assert read(tmp_path / "out.txt") == [f"LINE {n}" for n in range(20)]
    assert (tmp_path / "line 7").exists()
    assert (tmp_path / "line 17").exists()
    computed = Counter((tmp_path / "computed").read_text().splitlines())
    assert computed == dict.fromkeys((f"line {n}" for n in range(0, 20, 2)), 1)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (Actors(threads=99), "no machine of the cluster has 99 CPUs: give fewer --threads"),
        (Actors(threads=1, gpu=True), "no machine of the cluster has 1 CPUs and a GPU"),
    ],
)
def test_a_cluster_without_room(engine: Actors, message: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match=message):
        run(Upper(), source, tmp_path / "out.txt", engine=engine)


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("precision", ["float32"])
def test_the_number_of_actors_and_threads_changes_nothing(
    precision: str, model_folder: Path, tmp_path: Path
) -> None:
    records = [{"en": english, "de": german} for english, german in PAIRS * 3]
    source = write(tmp_path / "in.parquet", records)
    models = Models.find([str(model_folder)], "cpu", precision)
    operations = (
        Translate(models, "en", "new", SearchOptions(beam_size=4)),
        ScorePairs(models, "en", "de"),
        Filter("en", "de", max_length=5),
    )
    for operation in operations:
        outputs = []
        for actors, threads in ((1, 1), (2, 1), (1, 2)):
            if threads == 2 and isinstance(operation, ScorePairs):
                continue  # the last digits depend on the batches, which are smaller
            output = tmp_path / f"{type(operation).__name__}-{actors}-{threads}.jsonl"
            engine = Actors(actors=actors, threads=threads)
            run(operation, source, output, engine=engine, block_rows=16)
            outputs.append(output.read_bytes())
        assert len(set(outputs)) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_block_that_always_kills_its_actor_ends_the_run(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "line 7"}])
    operation = Deadly(folder=str(tmp_path), always=True)
    with pytest.raises(ValueError, match=r"10 actors died over rows 1 to 1 of \S+in\.txt"):
        run(operation, source, tmp_path / "out.txt", engine=Actors(actors=1, threads=1))


@pytest.mark.slow
def test_a_program_that_is_killed_goes_on(tmp_path: Path, everyday: Translator) -> None:
    """The driver gets SIGKILL between two blocks; the next run computes only what is missing."""
    source = write(tmp_path / "in.txt", [{"text": line} for line in LINES * 4])
    command = [
        *(sys.executable, "-m", "mt.corpus", "translate", "--input", str(source)),
        *("--output", str(tmp_path / "out.txt"), "--beam-size", "1", "--threads", "1"),
        *("--actors", "1", "--block-rows", "8"),
    ]
    environment = {**os.environ, **own_token()}
    program = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    partial = tmp_path / ".out.txt.partial"
    end = time.monotonic() + 200
    while len(list(partial.glob("*/*[0-9].json"))) < 3:
        assert time.monotonic() < end
        assert program.poll() is None
        time.sleep(0.02)
    program.kill()
    program.wait()
    assert not (tmp_path / "out.txt").exists()
    time.sleep(2)  # its actor ends too, and may end its block
    kept = len(list(partial.glob("*/*[0-9].json")))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [told] = re.findall(r"288 of 288 rows written; (\d+) were done before", done.stderr)
    assert kept <= int(told) // 8 <= kept + 1
    assert 3 <= kept < 36
    translated = everyday.translate(LINES * 4, beam_size=1)
    assert read(tmp_path / "out.txt") == [result.text for result in translated]


@pytest.mark.slow
def test_a_cluster_that_loses_a_node(tmp_path: Path) -> None:
    """In a process of its own: a process joins one cluster of Ray."""
    write(tmp_path / "in.txt", [{"text": f"line {n}"} for n in range(60)])
    script = Path(__file__).with_name("lose_a_node.py")
    environment = {**os.environ, **own_token()}
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1])["nodes"] == [2, 1]
    assert read(tmp_path / "out.txt") == [f"LINE {n}" for n in range(60)]


@dataclass(frozen=True)
class Unknown(Upper):
    """Cannot be loaded where it travels to."""

    def __reduce__(self) -> Any:
        return importlib.import_module, ("no_such_module",)


@pytest.mark.usefixtures("cluster")
def test_what_ray_reports_is_one_line(tmp_path: Path) -> None:
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match=r"^Ray: [^\n]*No module named 'no_such_module'$"):
        run(Unknown(), source, tmp_path / "out.txt", engine=Actors(actors=1, threads=1))


@pytest.mark.usefixtures("cluster")
def test_ray_waits_for_a_block_however_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(dataset: Any) -> Any:
        timeout = dataset.context.execution_no_progress_timeout_s
        raise ray.data.exceptions.ExecutionTimeoutError(f"no progress\nin {timeout} s")

    monkeypatch.setattr(ray.data.Dataset, "iter_rows", stalled)
    source = write(tmp_path / "in.txt", [{"text": "x"}])
    with pytest.raises(ValueError, match=r"^Ray: in -1 s$"):
        run(Upper(), source, tmp_path / "out.txt", engine=Actors(threads=1))


def test_all_cores_have_an_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [{"Alive": True, "Resources": {"CPU": cpus}} for cpus in (8.0, 3.0)]
    monkeypatch.setattr(ray, "nodes", lambda: machines)
    assert Actors()._room() == (11, 0)
    assert Actors(threads=2)._room() == (5, 0)


def test_a_filter_needs_no_torch() -> None:
    """In a process of its own, since this one has it."""
    code = (
        "import sys, mt.corpora.worker; from mt.corpora.operations import Filter; "
        "from mt.corpora.rows import Rows; "
        "Filter('a', min_length=1).load(1)(Rows([{'a': 'x'}])); sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_cluster_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "/nowhere/token")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    with pytest.raises(ValueError, match=r"^no cluster at nowhere:1: [^\n]+$"):
        list(Actors("nowhere:1")((Upper(), "", "text"), [Block(0, "x", 0, 1, 0)]))
