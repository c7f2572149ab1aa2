"""What scripts/benchmarks/corpus_cluster.py makes of its records, and that it goes on."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from script_helpers import load_script


def test_the_figures_follow_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "corpus_cluster")
    records = {
        "one": {"seconds": 1000.0},
        "tenth": {"peak_mib_of_actors": 500},
        "core": {"seconds": 216.0, "lines": 20_000},
        "whole": {"seconds": 1080.0, "peak_mib_of_actors": 510, "equal": True},
        "cluster": {"equal": True, "kills": 20, "nodes_lost": 1},
        "killed": {"equal": True},
    }
    figures = {
        "overhead": 0.08,
        "core_seconds_per_line": 0.0108,
        "core_hours_of_100_million_lines": 300,
        "growth_of_memory": 0.02,
        "all_equal": True,
    }
    assert script.report(Namespace(kills=20), records) == figures
    for step, name in (("cluster", "kills"), ("cluster", "nodes_lost"), ("killed", "equal")):
        broken = {**records, step: {**records[step], name: 0}}
        assert script.report(Namespace(kills=20), broken) == {**figures, "all_equal": False}


def test_a_process_finds_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "corpus_cluster")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in script.descendants(os.getpid())
        assert os.getppid() not in script.descendants(os.getpid())
        # Actors that another test has used may still be about to end.
        assert child.pid not in script.actors(os.getpid())
        assert script.memory([child.pid]) > 0
    finally:
        child.communicate(b"\n")


def test_actors_and_a_node_are_lost_as_rows_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script(monkeypatch, "corpus_cluster")
    alive, killed, nodes = [11, 12], [], []
    monkeypatch.setattr(script, "actors", lambda pid: alive)
    monkeypatch.setattr(script.os, "kill", lambda pid, number: killed.append(pid))
    losses = script.Losses(lines=100, kills=3, remove_node=lambda: nodes.append(len(killed)))
    losses.moments = [10, 20, 60]
    for done in range(1, 10):
        losses.progress(10)
        assert losses.node_lost == (done >= 5)
        assert len(killed) == (min(done, 2) if done < 9 else 3)
        if done == 8:
            alive.append(13)  # until then no other than those that were killed was there
    assert sorted(killed) == [11, 12, 13]
    assert nodes == [2]


def test_fewer_than_no_kills_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    script = load_script(monkeypatch, "corpus_cluster")
    command = ["corpus_cluster.py", "--input=in", "--folder=work", "--output=o.json", "--kills=-1"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        script.main()
    assert "--kills: must not be negative" in capsys.readouterr().err


def test_steps_that_are_done_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(monkeypatch, "corpus_cluster")
    (tmp_path / "in.en").write_text("One.\nTwo.\n")
    ran: list[str] = []
    for step in script.STEPS:
        monkeypatch.setitem(
            script.STEPS,
            step,
            lambda args, step=step: (
                ran.append(step)
                or {
                    "seconds": 1.0,
                    "peak_mib_of_actors": 1,
                    "lines": 1,
                    "kills": 20,
                    "nodes_lost": 1,
                }
            ),
        )
    command = [
        *("corpus_cluster.py", "--input", f"{tmp_path}/in.en", "--folder", f"{tmp_path}/work"),
        *("--output", f"{tmp_path}/out.json"),
    ]
    monkeypatch.setattr(sys, "argv", [*command, "--lines", "2", "--steps", "one,whole"])
    script.main()
    monkeypatch.setattr(sys, "argv", [*command, "--lines", "2"])
    script.main()
    assert ran == ["one", "whole", "tenth", "core", "cluster", "killed", "hostile"]
    assert json.loads((tmp_path / "out.json").read_text())["all_equal"]
    monkeypatch.setattr(sys, "argv", [*command, "--lines", "1"])
    with pytest.raises(SystemExit, match=r"was made with .*: name another --folder"):
        script.main()
