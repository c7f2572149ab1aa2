"""A sweep runs its jobs as they would run alone, notes what becomes of them, and can go on."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from train_helpers import arguments, assert_same_weights, run, start

from mt import train
from mt.data.readers import PhrasebookReader
from mt.training import run_dir, sweep
from mt.utils.processes import SWEEP

SHAPE = {"vocab_size": 10, "N": 1, "d_model": 8, "d_ff": 8, "h": 2, "P_drop": 0.1}
PARAMETERS = 10 * 8 + 12 * 64 + 2 * (2 * 64 + 16) + 5 * 16


def make_model(run_dir: Path, steps: int, bleu: float | None, perplexity: float = 9.0) -> None:
    training: dict[str, Any] = {"steps": steps}
    if bleu is not None:
        training |= {"validation perplexity": perplexity, "validation sacreBLEU": bleu}
        training["signature"] = "nrefs:1|version:x"
    (run_dir / "model").mkdir(parents=True, exist_ok=True)
    config = {"model": SHAPE, "training": training}
    (run_dir / "model" / "config.json").write_text(json.dumps(config))


def made_up(number: int, overrides: str, bleu: float | None, **others: Any) -> sweep.Job:
    scores = {"steps": 40, "perplexity": 20 - (bleu or 0), "sacreBLEU": bleu, "signature": "s:1"}
    job = {"job": number, "overrides": overrides.split(), "status": 0, "seconds": 61.2}
    return {**job, **(scores if bleu is not None else {}), "parameters": 1234567, **others}


# The table


def rows_of(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_is_of_what_varies_best_first() -> None:
    jobs = [
        made_up(0, "data=files model.h=2 +trainer.x=1", 3.5),
        made_up(1, "data=files model.h=4 +trainer.x=1", 7.25, seconds=3601),
        made_up(2, "data=files model.h=3 +trainer.x=1", None, status=2, seconds=1),
        made_up(3, "data=files model.h=4 +trainer.x=2", 7.25, perplexity=12),
    ]
    text = sweep.table(jobs)
    header = ["model.h", "trainer.x", "steps", "perplexity", "sacreBLEU", "parameters", "time"]
    assert rows_of(text) == [
        [*header, "job"],
        ["4", "2", "40", "12.00", "7.25", "1,234,567", "1:01", "3"],
        ["4", "1", "40", "12.75", "7.25", "1,234,567", "60:01", "1"],
        ["2", "1", "40", "16.50", "3.50", "1,234,567", "1:01", "0"],
        ["3", "1", "", "", "", "1,234,567", "0:01", "2 refused or diverged (status 2)"],
    ]
    assert "sacreBLEU s:1" in text
    assert "Over seeds" not in text


def test_seeds_are_summed_up_for_each_other_combination() -> None:
    jobs = [
        made_up(0, "seed=1 lr=1", 10.0),
        made_up(1, "seed=2 lr=1", 14.0),
        made_up(2, "seed=1 lr=2", 13.0),
        made_up(3, "seed=2 lr=2", None, status=2),
    ]
    first, second = sweep.over_seeds(jobs)
    assert (first["of"], first["seeds"]) == ({"lr": "2"}, 1)
    assert first["sacreBLEU"] == {"mean": 13, "deviation": None, "least": 13, "largest": 13}
    assert (second["of"], second["seeds"]) == ({"lr": "1"}, 2)
    assert second["sacreBLEU"] == pytest.approx(
        {"mean": 12, "deviation": 8**0.5, "least": 10, "largest": 14}
    )
    assert second["perplexity"]["mean"] == 8
    text = sweep.table(jobs).partition("Over seeds")[2]
    assert rows_of(text)[1:] == [
        ["2", "1", "13.00", "13.00 to 13.00", "7.00", "7.00 to 7.00"],
        ["1", "2", "12.00 ± 2.83", "10.00 to 14.00", "8.00 ± 2.83", "6.00 to 10.00"],
    ]


def test_trainings_of_other_lengths_are_not_summed_up_together() -> None:
    grid = [(seed, steps) for seed in (1, 2) for steps in (100, 200)]
    jobs = [
        made_up(i, f"seed={seed} trainer.max_steps={steps}", steps / 10 + seed)
        for i, (seed, steps) in enumerate(grid)
    ]
    means = [(row["of"], row["sacreBLEU"]["mean"]) for row in sweep.over_seeds(jobs)]
    assert means == [({"trainer.max_steps": "200"}, 21.5), ({"trainer.max_steps": "100"}, 11.5)]


def test_models_of_text_are_ordered_by_perplexity() -> None:
    runs = enumerate([(1, 1, 90), (2, 1, 80), (1, 2, 30), (2, 2, 20)])
    jobs = [
        made_up(i, f"seed={s} lr={lr}", None, perplexity=p, steps=40, signature="")
        for i, (s, lr, p) in runs
    ]
    text, _, means = sweep.table(jobs).partition("Over seeds")
    assert [row[3] for row in rows_of(text)[1:]] == ["20.00", "30.00", "80.00", "90.00"]
    assert [(row[0], row[2], row[4]) for row in rows_of(means)[1:]] == [
        ("2", "", "25.00 ± 7.07"),
        ("1", "", "85.00 ± 7.07"),
    ]


def test_scores_of_an_earlier_training_do_not_count_for_a_job_that_fails() -> None:
    jobs = [made_up(0, "seed=1", 30.0, status=1), made_up(1, "seed=2", 10.0)]
    assert [row[-1] for row in rows_of(sweep.table(jobs))[1:3]] == ["1", "0 failed (status 1)"]
    (row,) = sweep.over_seeds(jobs)
    assert (row["seeds"], row["sacreBLEU"]["mean"]) == (1, 10.0)


def test_a_sweep_over_seeds_alone_has_one_mean() -> None:
    jobs = [made_up(i, f"data=files seed={i}", 10.0 + i) for i in range(3)]
    (row,) = sweep.over_seeds(jobs)
    assert (row["of"], row["seeds"], row["sacreBLEU"]["deviation"]) == ({}, 3, 1)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ""),
        (None, "unfinished"),
        (1, "failed (status 1)"),
        (2, "refused or diverged (status 2)"),
        (130, "ended by SIGINT"),
        (-9, "ended by SIGKILL"),
        (255, "failed (status 255)"),
    ],
)
def test_how_a_job_has_ended_is_said_in_words(status: int | None, words: str) -> None:
    assert sweep.outcome({"status": status, "sacreBLEU": 1.0}) == words


def test_a_job_that_was_not_validated_is_named() -> None:
    assert "no score" in sweep.outcome({"status": 0})
    assert "no score" in sweep.table(
        [made_up(0, "seed=1", 10.0), {**made_up(1, "seed=2", 9.0), "sacreBLEU": None}]
    )


def test_results_are_what_the_model_folder_says(tmp_path: Path) -> None:
    assert sweep.results(tmp_path) == {}
    make_model(tmp_path, 7, None)
    results = sweep.results(tmp_path)
    assert (results["steps"], results["sacreBLEU"], results["parameters"]) == (7, None, PARAMETERS)
    make_model(tmp_path, 7, 3.0)
    assert sweep.results(tmp_path)["sacreBLEU"] == 3.0
    (tmp_path / "model" / "config.json").write_text("{}")
    assert sweep.results(tmp_path) == {}


# One job's process


def test_a_signal_is_handed_on_once_and_the_status_comes_back() -> None:
    script = (
        "import os, signal, sys, time\n"
        "received = []\n"
        "signal.signal(signal.SIGINT, lambda *_: received.append(1))\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "while not received: time.sleep(0.01)\n"
        "time.sleep(0.1)\n"
        "sys.exit(40 + len(received))\n"
    )
    before = signal.getsignal(signal.SIGINT)
    assert sweep._run([sys.executable, "-S", "-c", script]) == (41, signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before
    assert sweep._run([sys.executable, "-S", "-c", "raise SystemExit(3)"]) == (3, None)


def test_a_signal_that_comes_before_the_process_is_handed_on_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = "import time; time.sleep(60)"
    popen, sent = subprocess.Popen, []

    class Late(popen):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super().__init__(*args, **kwargs)

        def send_signal(self, signum: int) -> None:
            sent.append(signum)
            super().send_signal(signum)

    monkeypatch.setattr(sweep.subprocess, "Popen", Late)
    command = [sys.executable, "-S", "-c", script]
    assert sweep._run(command) == (-signal.SIGTERM, signal.SIGTERM)
    assert sent == [signal.SIGTERM]


def test_a_job_knows_the_process_of_its_sweep() -> None:
    script = f"import os; raise SystemExit(int(os.environ['{SWEEP}']) != os.getppid())"
    assert sweep._run([sys.executable, "-S", "-c", script]) == (0, None)


@pytest.mark.parametrize("name", ["plain", "a b", "x=1,y=[2]", "it's", "a\\b"])
def test_any_folder_comes_through_the_command_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [{"path": "/own", "provider": "command-line"}, {"path": "x", "provider": "main"}]
    hydra = {"runtime": {"config_sources": sources}, "job": {"config_name": "mine"}}
    monkeypatch.setattr(HydraConfig, "get", lambda: OmegaConf.create(hydra))
    *begin, last = sweep._command(["seed=1"], Path(name))
    assert begin[1:] == ["-m", "mt.train", "--config-dir=/own", "--config-name=mine", "seed=1"]
    parsed = OverridesParser.create().parse_override(last)
    assert (parsed.get_key_element(), str(parsed.value())) == ("hydra.run.dir", name)


# Sweeps with jobs that are made up


class Started:
    """In the place of processes: notes what is started, and makes what it would leave."""

    def __init__(self) -> None:
        self.seeds: list[str] = []
        self.answers: dict[str, tuple[int, int | None]] = {}  # by seed

    def __call__(self, command: list[str]) -> tuple[int, int | None]:
        values = dict(o.lstrip("+").split("=", 1) for o in command[3:])
        self.seeds.append(values["seed"])
        status = self.answers.get(values["seed"], (0, None))
        if status[0] == 0:
            run_dir = Path(values["hydra.run.dir"].strip("'"))
            make_model(run_dir, int(values["trainer.max_steps"]), float(values["seed"]))
        return status


@pytest.fixture
def sweeping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> tuple[Started, Callable[..., tuple[int, str, str]]]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    started = Started()
    monkeypatch.setattr(sweep, "_run", started)

    def call(*overrides: str) -> tuple[int, str, str]:
        started.seeds.clear()
        fixed = ["-m", "data=phrasebook", "model=tiny"]
        if not any("max_steps" in override for override in overrides):
            fixed.append("trainer.max_steps=4")
        monkeypatch.setattr(sys, "argv", ["mt.train", *fixed, *overrides])
        GlobalHydra.instance().clear()
        try:
            train.hydra_app.start("mt.train", train.main)
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *capsys.readouterr()

    return started, call


def test_a_sweep_ends_in_its_table_and_goes_on_where_it_ended(sweeping: Any) -> None:
    started, call = sweeping
    here = "hydra.sweep.dir=my sweep"
    started.answers["1"] = (2, None)
    code, out, _ = call("seed=1,2", here)
    assert (code, started.seeds) == (2, ["1", "2"])  # one fails, the other does not
    table = rows_of(out.partition("\n\n")[2])
    assert [row[0] for row in table[1:3]] == ["2", "1"]
    assert table[2][-1] == "0 refused or diverged (status 2)"
    content = json.loads(Path("my sweep/sweep.json").read_text())
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["date"])
    assert content["command"].startswith("python -m mt.train -m data=phrasebook")
    assert [job["status"] for job in content["jobs"]] == [2, 0]
    assert content["over seeds"][0]["sacreBLEU"]["mean"] == 2
    assert sweep.table(content["jobs"]) in Path("my sweep/sweep.md").read_text()
    assert "sweep: my sweep" in out

    code, _, err = call("seed=1,2", here)
    message = (
        "mt.train: error: my sweep holds a sweep: add ckpt=auto to continue it, or name another\n"
    )
    assert (code, err, started.seeds) == (2, message, [])
    code, _, err = call("seed=2,1", here, "ckpt=auto")
    assert (code, started.seeds) == (2, [])
    assert "my sweep holds another sweep: its job 0 is" in err
    assert err.count("\n") == 1
    started.answers.clear()
    code, out, _ = call("seed=1,2", here, "ckpt=auto")
    assert (code, started.seeds) == (0, ["1"])  # what is finished is not done again
    assert "job 1 is finished" in out
    jobs = sweep.read(Path("my sweep"))
    assert [job["sacreBLEU"] for job in jobs] == [1, 2]
    assert jobs[1] == {**content["jobs"][1], "overrides": jobs[1]["overrides"]}


def test_an_interrupted_sweep_ends_and_goes_on_with_more_steps(sweeping: Any) -> None:
    started, call = sweeping
    started.answers["2"] = (130, signal.SIGINT)
    code, out, _ = call("seed=1,2,3", "hydra.sweep.dir=x")
    assert (code, started.seeds) == (130, ["1", "2"])
    assert "the sweep is interrupted; ckpt=auto hydra.sweep.dir=x continues it" in out
    assert "ended by SIGINT" in Path("x/sweep.md").read_text()
    started.answers.clear()
    code, _, _ = call("seed=1,2,3", "hydra.sweep.dir=x", "ckpt=auto", "trainer.max_steps=9")
    assert (code, started.seeds) == (0, ["1", "2", "3"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=1,2", "ckpt=last"], "ckpt=last: a sweep continues with ckpt=auto and"),
        (["seed=1,2", "ckpt=auto"], "ckpt=auto continues the sweep that hydra.sweep.dir=FOLDER"),
        (["seed=1,2", "nonsense=1"], "nonsense is no setting"),
        (["variation=A_h1,A_h2"], "variation=A_h2: conf/variation has no such file"),
    ],
)
def test_a_wrong_command_line_is_one_line_before_any_job(
    sweeping: Any, overrides: list[str], message: str
) -> None:
    started, call = sweeping
    code, _, err = call(*overrides)
    assert (code, started.seeds) == (2, [])
    assert err.startswith("mt.train: error: ")
    assert message in err
    assert err.count("\n") == 1


GONE = ["data=files", "data.train=gone", "data.validation=gone"]


def test_a_sweep_whose_data_cannot_be_had_ends_before_its_jobs(sweeping: Any) -> None:
    started, call = sweeping
    code, _, err = call(*GONE, "seed=1,2,3", "variation=A_h4,C_N2", "hydra.sweep.dir=outputs/x")
    assert (code, started.seeds) == (2, [])
    assert err == "mt.train: error: no such file: gone.en or gone.en.gz\n"
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    "vary", ["data.limit=5,6", "experiment=tatoeba,everyday", "data=files,wmt14"]
)
def test_jobs_with_data_of_their_own_fail_alone(vary: str, sweeping: Any) -> None:
    started, call = sweeping
    started.answers["1"] = (2, None)
    gone = [
        override for override in GONE if not vary.startswith("data=") or "=gone" not in override
    ]
    code, _, err = call(*gone, "seed=1", vary)
    assert (code, started.seeds) == (2, ["1", "1"]), err


def test_data_are_read_once_and_not_for_finished_jobs(
    sweeping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, call = sweeping
    read: list[str] = []
    original = PhrasebookReader.pairs

    def pairs(self: PhrasebookReader, split: str) -> Any:
        read.append(split)
        return original(self, split)

    monkeypatch.setattr(PhrasebookReader, "pairs", pairs)
    assert call("seed=1,2", "hydra.sweep.dir=x")[0] == 0
    assert read == ["train", "validation"]
    assert call("seed=1,2", "hydra.sweep.dir=x", "ckpt=auto")[0] == 0
    assert read == ["train", "validation"]


def test_sweeps_that_start_in_the_same_second_have_folders_of_their_own(sweeping: Any) -> None:
    _, call = sweeping
    name = "hydra.sweep.dir=${new_dir:outputs/now}"
    assert call("seed=1,2", name)[0] == 0
    assert call("seed=1,2", name)[0] == 0
    assert sorted(path.name for path in Path("outputs").iterdir()) == ["now", "now-2"]
    for folder in Path("outputs").iterdir():
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["0", "1", "multirun.yaml", "sweep.json", "sweep.md"]


def test_a_second_sweep_in_a_folder_ends_at_once(
    sweeping: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, call = sweeping
    monkeypatch.setattr(run_dir, "LOCK_TIMEOUT", 0.1)
    with run_dir.only_run(Path("x")):
        code, _, err = call("seed=1,2", "hydra.sweep.dir=x", "ckpt=auto")
    assert (code, started.seeds) == (2, [])
    assert err == "mt.train: error: x: another mt.train is running there; wait, or name another\n"
    assert call("seed=1,2", "hydra.sweep.dir=x", "ckpt=auto")[0] == 0


# Sweeps of real jobs


@pytest.mark.slow
def test_the_jobs_of_a_sweep_are_the_runs_alone_bit_for_bit(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = arguments(corpus, tmp_path / "unused", trainer__max_steps=6)[:-1]
    here = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    process = start(["-m", *many, "seed=1,2", "training.lr_factor=0.5,x", here], tmp_path)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 2, output
    assert output.count("lr_factor='x': must be a number above 0") == 2
    jobs = sweep.read(tmp_path / "sweep")
    assert [job["status"] for job in jobs] == [0, 2, 0, 2]
    assert not (tmp_path / "sweep" / "1").exists()
    for seed, job in ((1, 0), (2, 2)):
        alone = tmp_path / str(seed)
        changes = {"trainer.max_steps": 6, "seed": seed, "training.lr_factor": 0.5}
        assert run(arguments(corpus, alone, **changes), monkeypatch) == 0
        assert_same_weights(alone, tmp_path / "sweep" / str(job))


@pytest.mark.slow
def test_ctrl_c_ends_a_sweep_that_goes_on_to_the_same_end(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = ["-m", *arguments(corpus, tmp_path / "unused", trainer__max_steps=400)[:-1], "seed=1,2"]
    many.append("training.lr_factor=0.5")
    args = [*many, f"hydra.sweep.dir={tmp_path / 'sweep'}", "ckpt=auto"]
    process = start(args, tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if "parameters for 400 steps" in line:
            break
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 130, output
    assert "job 1" not in output
    process = start(args, tmp_path)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    assert "resuming from" in output
    alone = arguments(corpus, tmp_path / "alone", trainer__max_steps=400)
    assert run([*alone, "training.lr_factor=0.5"], monkeypatch) == 0
    assert_same_weights(tmp_path / "alone", tmp_path / "sweep" / "0")
