"""A checkpoint that a run cannot resume is refused in one line, before anything is written."""

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from train_helpers import arguments, assert_same_weights, run

from mt.model.transformer import Transformer
from mt.training.resume import check_checkpoint, check_state, keep_settings

ODD = [None, True, -1, 2**80, 1.5, math.nan, "x", [], {}, [None], {"x": 1}, torch.zeros(1)]
NOT_OURS = "not a training checkpoint of this project"


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps with checkpoints at each second one."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    with pytest.MonkeyPatch.context() as patch:
        changes = {"trainer.max_steps": 4, "checkpoint_every": 2}
        assert run(arguments(corpus, folder, **changes), patch) == 0
    return folder


@pytest.fixture(scope="module")
def saved(finished: Path) -> dict[str, Any]:
    return torch.load(finished / "checkpoints" / "step-00000002.ckpt", weights_only=True)


class Module(torch.nn.Module):
    def __init__(self, shape: dict[str, Any]) -> None:
        super().__init__()
        self.model = Transformer(**shape)


def check(saved: dict[str, Any], module: Module) -> None:
    check_checkpoint(Path("RUN/x.ckpt"), saved)
    check_state(Path("RUN/x.ckpt"), saved, module)


NEEDED = [
    "pytorch-lightning_version", "global_step", "state_dict", "hyper_parameters",
    "hyper_parameters.model", "hyper_parameters.model.vocab_size", "optimizer_states",
    "optimizer_states.0", "optimizer_states.0.state", "optimizer_states.0.state.3",
    "optimizer_states.0.state.3.step", "optimizer_states.0.state.3.exp_avg",
    "optimizer_states.0.state.3.exp_avg_sq", "callbacks", "callbacks.Saving",
    "callbacks.Saving.kept", "callbacks.Saving.best", "TranslationData",
    "TranslationData.batches_seen", "TranslationData.max_tokens", "TranslationData.world_size",
    "TranslationData.pairs",
]  # fmt: skip


def replaced(saved: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """A copy in which the part of this name is another; without it, for ``...``."""
    content = copy.deepcopy(saved)
    *path, last = [int(part) if part.isdigit() else part for part in name.split(".")]
    place: Any = content
    for part in path:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return content


@pytest.mark.parametrize("name", NEEDED)
def test_a_needed_part_that_is_missing_or_odd_is_refused(name: str, saved: dict[str, Any]) -> None:
    module = Module(saved["hyper_parameters"]["model"])
    check(saved, module)
    for value in (..., *ODD):
        if name == "callbacks.Saving.kept" and value == []:
            continue
        if name == "callbacks.Saving.best" and isinstance(value, float):
            continue
        content = replaced(saved, name, value)
        if not isinstance(content.get("state_dict"), dict):
            continue  # read_checkpoint refuses it
        with pytest.raises(ValueError, match=r"^RUN/x.ckpt: ") as refused:
            check(content, module)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("global_step", ..., "global_step is missing"),
        ("hyper_parameters", ..., "hyper_parameters.model is missing"),
        ("hyper_parameters.model.N", 10**9, "hyper_parameters.model: N=1000000000: must be"),
        ("hyper_parameters.started_from", 5, "started_from is no name"),
        ("callbacks.Saving.kept", ["../../secret.ckpt"], "kept names other files"),
        ("TranslationData.epoch_length", 0, "no sizes above 0"),
        ("TranslationData.world_size", 0, "no sizes above 0"),
        ("pytorch-lightning_version", "0.9", "of another version of Lightning"),
    ],
)
def test_the_message_says_which_part(
    name: str, value: Any, message: str, saved: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=f"{NOT_OURS}: .*{message}"):
        check_checkpoint(Path("x"), replaced(saved, name, value))


def of_other_shape(saved: dict[str, Any]) -> str:
    state = saved["optimizer_states"][0]["state"]
    state[0]["exp_avg"] = state[0]["exp_avg"][1:].clone()
    return "its optimizer state is not that of the model"


def not_finite(saved: dict[str, Any]) -> str:
    saved["optimizer_states"][0]["state"][1]["exp_avg"][0] = math.inf
    return "optimizer_states.1.exp_avg.* not a finite number"


def negative(saved: dict[str, Any]) -> str:
    saved["optimizer_states"][0]["state"][1]["exp_avg_sq"][0] = -1
    return "a number below 0"


def of_another_model(saved: dict[str, Any]) -> str:
    saved["state_dict"]["model.encoder.9.x"] = torch.zeros(2)
    return "holds the weight 'encoder.9.x'"


def with_more(saved: dict[str, Any]) -> str:
    saved["state_dict"]["teacher.x"] = torch.zeros(2)
    return "holds more than the weights of the model"


@pytest.mark.parametrize(
    "change", [of_other_shape, not_finite, negative, of_another_model, with_more]
)
def test_numbers_that_are_not_the_models_are_refused(
    change: Callable[[dict[str, Any]], str], saved: dict[str, Any]
) -> None:
    content = copy.deepcopy(saved)
    message = change(content)
    with pytest.raises(ValueError, match=message):
        check(content, Module(saved["hyper_parameters"]["model"]))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", ["hyper_parameters", "global_step", "optimizer_states.0.state"])
def test_the_program_says_it_in_one_line_and_writes_nothing(
    name: str, saved: dict[str, Any], finished: Path, corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: Any,
) -> None:  # fmt: skip
    folder = shutil.copytree(finished, tmp_path / "run")
    ckpt = folder / "checkpoints" / "step-00000002.ckpt"
    torch.save(replaced(saved, name, ...), ckpt)
    before = everything(folder)
    capsys.readouterr()
    assert run([*arguments(corpus, folder), f"ckpt={ckpt}"], monkeypatch) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"mt.train: error: {ckpt}: ")
    assert error.count("\n") == 1
    assert everything(folder) == before


def test_parts_that_the_settings_determine_are_not_read(
    saved: dict[str, Any], finished: Path, corpus: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever they are, the run ends as it did: nothing in them can mislead Lightning or Adam."""
    folder = shutil.copytree(finished, tmp_path / "run")
    content = copy.deepcopy(saved)
    (state,) = content["optimizer_states"]
    state["param_groups"] = [{"lr": 9.0, "amsgrad": True, "params": "none"}]
    content |= {"lr_schedulers": [{"optimizer": 5}], "loops": {"fit_loop": 3}, "epoch": "x"}
    content["hyper_parameters"] |= {"seed": None, "eps_ls": "x"}
    ckpt = folder / "checkpoints" / "step-00000002.ckpt"
    torch.save(content, ckpt)
    changes = {"trainer.max_steps": 4, "checkpoint_every": 2}
    assert run([*arguments(corpus, folder, **changes), f"ckpt={ckpt}"], monkeypatch) == 0
    assert_same_weights(finished, folder)


# Settings


def test_a_resumed_run_names_the_settings_that_differ_and_keeps_the_old_ones(
    finished: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    before = (folder / "config.yaml").read_text("utf-8")
    changes = {"trainer.max_steps": 6, "checkpoint_every": 2, "search.beam_size": 2}
    assert run([*arguments(corpus, folder, **changes), "ckpt=last"], monkeypatch) == 0
    output = capsys.readouterr().out
    kept = folder / "config-00000004.yaml"
    line = f"settings that differ from those up to step 4, which {kept} keeps: "
    assert f"{line}search.beam_size: 1 → 2, trainer.max_steps: 4 → 6\n" in output
    assert kept.read_text("utf-8") == before
    assert yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["max_steps"] == 6

    changes |= {"trainer.max_steps": 8, "seed": 2, "training.beta1": 0.8, "model.P_drop": 0.2}
    assert run([*arguments(corpus, folder, **changes), "ckpt=last"], monkeypatch) == 0
    output = capsys.readouterr().out
    assert "seed: 1 → 2" in output
    assert "training.beta1: 0.9 → 0.8" in output
    assert "model.P_drop: 0.1 → 0.2" in output or "model.P_drop: 0.0 → 0.2" in output
    assert "; the run will not end as it would have without the change\n" in output
    last = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["optimizer_states"][0]["param_groups"][0]["betas"][0] == 0.8


def test_no_change_of_settings_is_no_news(tmp_path: Path) -> None:
    old = {"seed": 1, "ckpt": None, "data": {"train": ["a", "b"], "noise": 0.1}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    new = {**old, "ckpt": "last", "average": 5}  # average: a setting that old versions lacked
    assert keep_settings(tmp_path, new, 3) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    (tmp_path / "config.yaml").write_text("[: no yaml")
    assert keep_settings(tmp_path, new, 3) == ""


@pytest.mark.parametrize(
    ("name", "is_neutral"),
    [("average", False), ("checkpoint_every", False), ("validate_every", True)],
)
def test_what_the_model_is_the_mean_of_is_no_neutral_setting(
    name: str, is_neutral: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(f"{name}: 5\n")
    text = keep_settings(tmp_path, {name: 1}, 3)
    assert ("will not end as it would have" in text) != is_neutral


def test_settings_of_the_trainer_that_one_command_lacks_are_named(tmp_path: Path) -> None:
    old = {"trainer": {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(old))
    text = keep_settings(tmp_path, {"trainer": {"gradient_clip_val": 0.1, "benchmark": True}}, 4)
    assert "trainer.gradient_clip_algorithm: value → none" in text
    assert "trainer.benchmark: none → true" in text
    assert "will not end as it would have" in text


def test_no_settings_are_lost(tmp_path: Path) -> None:
    names = set()
    for seed in (1, 2, 3):
        (tmp_path / "config.yaml").write_text(f"seed: {seed}\n")
        keep_settings(tmp_path, {"seed": seed + 1}, 12)
        names = {path.name: path.read_text() for path in tmp_path.glob("config-*")}
    assert names == {
        "config-00000012.yaml": "seed: 1\n",
        "config-00000012-2.yaml": "seed: 2\n",
        "config-00000012-3.yaml": "seed: 3\n",
    }


def test_many_changes_fit_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({f"x{i}": i for i in range(30)}))
    text = keep_settings(tmp_path, {f"x{i}": i + 1 for i in range(30)}, 1)
    assert "x7: 7 → 8, 22 more" in text
    assert "\n" not in text
