"""The peer's side of the comparison of trainings, the peer played: what is changed from outside."""

import importlib
import json
import math
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks"


class PlayedManager:
    """What our changes need of Joey NMT's TrainManager: two updates, then a validation."""

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


class PlayedModel(torch.nn.Sequential):
    """With a dropout in each place, and Joey NMT's loss: set as a pair, read as a module."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Dropout(0.3), PlayedAttention(), PlayedFeedForward())
        self.loss_function = ("crossentropy", 0.1)

    @property
    def loss_function(self) -> Any:
        return SimpleNamespace(smoothing=self.smoothing)

    @loss_function.setter
    def loss_function(self, pair: tuple[str, float]) -> None:
        self.smoothing = pair[1]


class PlayedAttention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = torch.nn.Dropout(0.3)
        self.q_layer, self.output_layer = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)


class PlayedFeedForward(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        both = torch.nn.Dropout(0.3), torch.nn.Linear(2, 2), torch.nn.Dropout(0.3)
        self.pwff_layer = torch.nn.Sequential(*both)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
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
            "TrainManager": PlayedManager,
            "predict": predict,
            "build_optimizer": optimizer,
        },
        "joeynmt.helpers": {"make_model_dir": None, "set_seed": None},
        "joeynmt.transformer_layers": {
            "MultiHeadedAttention": PlayedAttention,
            "PositionwiseFeedForward": PlayedFeedForward,
        },
    }
    for name, content in contents.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.delitem(sys.modules, "compare_training_joeynmt", raising=False)
    return importlib.import_module("compare_training_joeynmt")


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_peers_clock_leaves_validation_out(peer: ModuleType, tmp_path: Path) -> None:
    model = PlayedModel()
    options = {"eps": 1e-9, "validate_every": 4}
    manager = peer.change_training(options, peer.Clock(tmp_path))(model)
    begin = time.perf_counter()
    manager.train_and_validate()
    assert time.perf_counter() - begin > 0.2  # the validation at the fourth update
    assert manager.saved == [2]  # no validation, a checkpoint all the same
    assert model.smoothing == 0.1
    manager._train_step(SimpleNamespace(src_length=torch.tensor([3, 4]), ntokens=9))
    manager.scheduler.step(4)
    updates = records(tmp_path / "clock.jsonl")
    assert [each["step"] for each in updates] == [1, 2, 3, 4, 5]
    assert all(each["src"] == 7 and each["tgt"] == 9 for each in updates)
    assert updates[-1]["seconds"] < 0.19
    (validation,) = records(tmp_path / "validations.jsonl")
    assert validation == {"step": 4, "perplexity": 12.5, "pieces": ["▁a ▁b"]}


def test_the_peers_dropout_and_adam_are_the_papers(peer: ModuleType, tmp_path: Path) -> None:
    model = PlayedModel()
    options = {"eps": 1e-9, "validate_every": 4}
    peer.change_training(options, peer.Clock(tmp_path))(model)
    drops = [m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)]
    assert drops == [0.3, 0.0, 0.0, 0.3]
    optimizer = peer.joeynmt.training.build_optimizer({}, model.parameters())
    assert optimizer.param_groups[0]["eps"] == 1e-9


def test_the_peers_weights_are_drawn_as_ours(peer: ModuleType) -> None:
    attention = PlayedAttention()
    before = {name: weight.clone() for name, weight in attention.named_parameters()}
    peer.draw_attention_as_mt(attention)
    changed = {n: (w / before[n]).mean().item() for n, w in attention.named_parameters()}
    assert changed.pop("q_layer.weight") == pytest.approx(2**-0.5)
    assert set(changed.values()) == {1.0}


def test_the_peers_checkpoints_are_averaged(peer: ModuleType, tmp_path: Path) -> None:
    states = [{"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 6.0])}]
    paths = [tmp_path / f"{i}.ckpt" for i in range(2)]
    for path, state in zip(paths, states, strict=True):
        torch.save({"model_state": state, "optimizer_state": {}}, path)
    mean = peer.average(paths)
    assert mean["w"].tolist() == [2.0, 4.0]
    assert mean["w"].dtype == torch.float32


def test_the_peer_translates_one_set_by_the_mean_of_its_last_checkpoints(
    peer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (5, 10, 15):
        state = {"w": torch.tensor([float(step)])}
        torch.save({"model_state": state, "optimizer_state": {}}, tmp_path / f"{step}.ckpt")
    (tmp_path / "about.json").write_text(json.dumps({"checkpoints": [5, 10, 15]}))
    called = []

    def test(config: dict[str, Any], output_path: str) -> None:
        mean = torch.load(config["testing"]["load_model"])["model_state"]["w"].item()
        called.append((mean, list(config["data"]), output_path))

    monkeypatch.setattr(peer.joeynmt.prediction, "test", test)
    for split, count in (("dev", "2"), ("test", "3")):
        config = {"data": {"train": "t", "dev": "d", "test": "e"}, "testing": {}, "comparison": {}}
        peer.decode({**config, "model_dir": str(tmp_path)}, split, count)
    outputs = [str(tmp_path / f"hypotheses-{count}") for count in (2, 3)]
    assert called == [(12.5, ["train", "dev"], outputs[0]), (10.0, ["train", "test"], outputs[1])]
    config = {"data": {"dev": "d", "test": "e"}, "testing": {}, "comparison": {}}
    with pytest.raises(SystemExit, match="4 checkpoints are not there"):
        peer.decode({**config, "model_dir": str(tmp_path)}, "dev", "4")
