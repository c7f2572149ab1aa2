"""The clocks of compare_training.py, and its changes to Joey NMT, which fakes replace here."""

import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from script_helpers import load_script


class FakeManager:
    """The parts of Joey NMT's TrainManager that the changes need: a validation every 2 updates."""

    def __init__(self, model: Any) -> None:
        self.model, self.saved = model, []
        self.stats = SimpleNamespace(steps=0)
        self.scheduler = SimpleNamespace(step=lambda done: None)

    def train_and_validate(self) -> None:
        for _ in range(4):
            batch = SimpleNamespace(src_length=torch.tensor([3, 4]), ntokens=9)
            self._train_step(batch)
            self.scheduler.step(self.stats.steps)
            self.stats.steps += 1
            if self.stats.steps % 2 == 0:
                self._validate(None)

    def _train_step(self, batch: Any) -> None: ...

    def _validate(self, data: Any) -> None:
        sys.modules["joeynmt.training"].predict(self.model)  # type: ignore[attr-defined]

    def _save_checkpoint(self, best: bool, score: float) -> None:
        assert math.isnan(score)
        self.saved.append(self.stats.steps)


class FakeModel(torch.nn.Sequential):
    """Has dropout in each place, and Joey NMT's loss: set as a pair, read as a module."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Dropout(0.3), FakeAttention(), FakeFeedForward())
        self.loss_function = ("crossentropy", 0.1)

    @property
    def loss_function(self) -> Any:
        return SimpleNamespace(smoothing=self.smoothing)

    @loss_function.setter
    def loss_function(self, pair: tuple[str, float]) -> None:
        self.smoothing = pair[1]


class FakeAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.3)
        self.q_layer, self.output_layer = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


class FakeFeedForward(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Dropout(0.3), torch.nn.Linear(2, 2), torch.nn.Dropout(0.3)
        self.pwff_layer = torch.nn.Sequential(*layers)


@pytest.fixture
def joeynmt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    def predict(model: Any) -> Any:
        assert model.smoothing == 0.0
        time.sleep(0.2)
        return {"ppl": 12.5}, None, ["▁a ▁b"]

    def optimizer(cfg: Any, parameters: Any) -> Any:
        return SimpleNamespace(param_groups=[{"eps": 1e-8}])

    contents = {
        "joeynmt": {},
        "joeynmt.prediction": {"test": None},
        "joeynmt.training": {
            "TrainManager": FakeManager,
            "predict": predict,
            "build_optimizer": optimizer,
        },
        "joeynmt.helpers": {"make_model_dir": None, "set_seed": None},
        "joeynmt.transformer_layers": {
            "MultiHeadedAttention": FakeAttention,
            "PositionwiseFeedForward": FakeFeedForward,
        },
    }
    for name, content in contents.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    monkeypatch.delitem(sys.modules, "compare_training_joeynmt", raising=False)
    return load_script(monkeypatch, "compare_training_joeynmt")


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_mt_s_clock_leaves_validation_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = load_script(monkeypatch, "compare_training_mt").Clock()
    trainer = SimpleNamespace(
        estimated_stepping_batches=9,
        global_step=0,
        is_global_zero=False,
        world_size=1,
        sanity_checking=False,
        logger=SimpleNamespace(save_dir=str(tmp_path)),
        state=SimpleNamespace(fn="fit"),
        callback_metrics={"val_loss": 3.0, "val_ppl": 12.5, "val_bleu": 7.0},
    )
    batch = SimpleNamespace(src=SimpleNamespace(tokens=7), tgt=SimpleNamespace(tokens=9))
    data = SimpleNamespace(validation_texts=([], []))
    module: Any = SimpleNamespace(data=data, val_translations=[])
    clock.on_train_start(trainer, torch.nn.Linear(1, 1))
    for step in (1, 2):
        trainer.global_step = step
        clock.on_train_batch_end(trainer, None, None, batch, 0)
        if step == 1:
            time.sleep(0.2)
            clock.on_validation_end(trainer, module)
    updates = json_lines(tmp_path / "clock.jsonl")
    assert [(u["step"], u["src"], u["tgt"]) for u in updates] == [(1, 7, 9), (2, 7, 9)]
    assert updates[-1]["seconds"] < 0.19
    (validation,) = json_lines(tmp_path / "validations.jsonl")
    assert validation == {"step": 1, "perplexity": 12.5, "bleu": 7.0}


def test_joeynmt_s_clock_leaves_validation_out(joeynmt: ModuleType, tmp_path: Path) -> None:
    model = FakeModel()
    options = {"eps": 1e-9, "validate_every": 4}
    manager = joeynmt.change_training(options, joeynmt.Clock(tmp_path))(model)
    begin = time.perf_counter()
    manager.train_and_validate()
    assert time.perf_counter() - begin > 0.2  # the validation at the fourth update
    assert manager.saved == [2]  # no validation, a checkpoint all the same
    assert model.smoothing == 0.1
    manager._train_step(SimpleNamespace(src_length=torch.tensor([3, 4]), ntokens=9))
    manager.scheduler.step(4)
    updates = json_lines(tmp_path / "clock.jsonl")
    assert [update["step"] for update in updates] == [1, 2, 3, 4, 5]
    assert all(update["src"] == 7 and update["tgt"] == 9 for update in updates)
    assert updates[-1]["seconds"] < 0.19
    (validation,) = json_lines(tmp_path / "validations.jsonl")
    assert validation == {"step": 4, "perplexity": 12.5, "pieces": ["▁a ▁b"]}


def test_joeynmt_s_dropout_and_adam_are_the_papers(joeynmt: ModuleType, tmp_path: Path) -> None:
    model = FakeModel()
    options = {"eps": 1e-9, "validate_every": 4}
    joeynmt.change_training(options, joeynmt.Clock(tmp_path))(model)
    drops = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    assert drops == [0.3, 0.0, 0.0, 0.3]
    optimizer = joeynmt.joeynmt.training.build_optimizer({}, model.parameters())
    assert optimizer.param_groups[0]["eps"] == 1e-9


def test_joeynmt_s_weights_are_drawn_like_mt_s(joeynmt: ModuleType) -> None:
    attention = FakeAttention()
    before = {name: weight.clone() for name, weight in attention.named_parameters()}
    joeynmt.draw_attention_as_mt(attention)
    changed = {n: (w / before[n]).mean().item() for n, w in attention.named_parameters()}
    assert changed.pop("q_layer.weight") == pytest.approx(2**-0.5)
    assert set(changed.values()) == {1.0}


def test_joeynmt_s_checkpoints_are_averaged(joeynmt: ModuleType, tmp_path: Path) -> None:
    states = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    paths = [tmp_path / f"{i}.ckpt" for i in range(2)]
    for path, state in zip(paths, states, strict=True):
        torch.save({"model_state": state, "optimizer_state": {}}, path)
    mean = joeynmt.average(paths)
    assert mean["w"].tolist() == [2.0, 4.0]
    assert mean["w"].dtype == torch.float32


def test_joeynmt_translates_one_set_by_the_mean_of_its_last_checkpoints(
    joeynmt: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (5, 10, 15):
        state = {"w": torch.tensor([float(step)])}
        torch.save({"model_state": state, "optimizer_state": {}}, tmp_path / f"{step}.ckpt")
    (tmp_path / "about.json").write_text(json.dumps({"checkpoints": [5, 10, 15]}))
    called = []

    def test(config: dict[str, Any], output_path: str) -> None:
        mean = torch.load(config["testing"]["load_model"])["model_state"]["w"].item()
        called.append((mean, list(config["data"]), output_path))

    monkeypatch.setattr(joeynmt.joeynmt.prediction, "test", test)
    for split, count in (("dev", "2"), ("test", "3")):
        config = {"data": {"train": "t", "dev": "d", "test": "e"}, "testing": {}, "comparison": {}}
        joeynmt.decode({**config, "model_dir": str(tmp_path)}, split, count)
    outputs = [str(tmp_path / f"hypotheses-{count}") for count in (2, 3)]
    assert called == [(12.5, ["train", "dev"], outputs[0]), (10.0, ["train", "test"], outputs[1])]
    config = {"data": {"dev": "d", "test": "e"}, "testing": {}, "comparison": {}}
    with pytest.raises(SystemExit, match="4 checkpoints are not there"):
        joeynmt.decode({**config, "model_dir": str(tmp_path)}, "dev", "4")
