"""Learning curves, from the logs of a run and its later starts."""

import math
import os
from pathlib import Path

from mt.evaluation.learning_curves import learning_curves

HEADER = "epoch,learning_rate,step,train_nll,val_bleu,val_loss,val_ppl,val_of_mean\n"


def write_log(run: Path, version: int, rows: str) -> None:
    path = run / "logs" / f"version_{version}" / "metrics.csv"
    path.parent.mkdir(parents=True)
    path.write_text(HEADER + rows, encoding="utf-8")


def test_the_logs_of_a_resumed_run_are_one(tmp_path: Path) -> None:
    """The second start begins before the first's end; the tenth comes after the second."""
    write_log(tmp_path, 0, "0,0.1,10,5.0,,,\n0,,19,,1.5,3,20\n0,0.1,20,4.0,,,\n0,0.1,30,9.0,,,\n")
    write_log(tmp_path, 2, "0,0.1,30,3.0,,,\n0,0.1,40,2.5,,,\n")
    write_log(tmp_path, 10, "1,0.1,40,2.0,,,\n1,,49,,2.5,2,10\n")
    for model in (tmp_path / "model", tmp_path / "checkpoints" / "last.ckpt"):
        curves = learning_curves(model)
        assert curves["train_nll"] == [(10, 5.0), (20, 4.0), (30, 3.0), (40, 2.0)]
        assert curves["val_bleu"] == [(20, 1.5), (50, 2.5)]  # 19 in the log
        assert curves["val_nll"] == [(20, math.log(20)), (50, math.log(10))]


def test_the_averaged_model_is_a_point_of_its_own(tmp_path: Path) -> None:
    """A run that was complete and then extended: the mean of its first part is no point."""
    write_log(tmp_path, 0, "0,,99,,30,3,20,\n0,,100,,35,3,10,1\n")
    write_log(tmp_path, 1, "1,0.1,149,2.5,,,,\n1,,199,,33,3,9,\n1,,200,,37,3,8,1\n")
    curves = learning_curves(tmp_path / "model")
    assert curves["val_bleu"] == [(100, 30), (200, 33)]
    assert curves["mean_bleu"] == [(200, 37)]
    assert curves["mean_nll"] == [(200, math.log(8))]
    assert curves["val_nll"] == [(100, math.log(20)), (200, math.log(9))]


def test_a_model_without_logs_has_no_curves(tmp_path: Path) -> None:
    assert learning_curves(tmp_path / "model") == {}
    write_log(tmp_path, 0, "")
    assert learning_curves(tmp_path / "model") == {}


def test_a_damaged_log_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    write_log(
        tmp_path,
        0,
        "0,0.1,10,5.0,,,\nx,y,z\n0,,nan,1,,,\n0,0.1,11,nonsense,,,0\n\0\0\n0,0.1,20,4.0",
    )
    assert learning_curves(tmp_path / "model") == {"train_nll": [(10, 5.0), (20, 4.0)]}


def test_a_log_that_is_none_does_no_harm(tmp_path: Path) -> None:
    rows = "0,0.1,10,5.0,,,\n0,0.1,1e300,1e300,,,\n0,0.1,20,-inf,,,\n0,0.1,30,1e309,,,\n"
    write_log(tmp_path, 0, rows + "x" * 200_000 + "\n0,0.1,40,4.0,,,\n")
    (tmp_path / "logs" / "version_1").mkdir()
    os.mkfifo(tmp_path / "logs" / "version_1" / "metrics.csv")
    assert learning_curves(tmp_path / "model") == {"train_nll": [(10, 5.0)]}


def test_logs_are_those_of_the_models_own_run(tmp_path: Path) -> None:
    write_log(tmp_path, 0, "0,0.1,10,5.0,,,\n")
    assert learning_curves(tmp_path / "model")
    assert learning_curves(tmp_path / "checkpoints" / "last.ckpt")
    assert not learning_curves(tmp_path / "models" / "everyday")
