"""Joey NMT's side of `compare_training.py`, which writes its configuration: in its own interpreter.

PYTHON scripts/compare_training_joeynmt.py train CONFIG
PYTHON scripts/compare_training_joeynmt.py decode CONFIG SPLIT COUNT    # by the mean of the last

Training is Joey NMT's own: its configuration, TrainManager, batches, checkpoints, validation.
Changed from outside are only: queries, keys and values are drawn with the gain that mt has, where
its configuration knows one gain for all; no dropout on attention weights and within the
feed-forward network, where the paper has none; Adam's eps, which its configuration does not know;
the seed, set before the weights are drawn and not behind them; a validation's loss is not smoothed.
A clock counts every update, validation left out. CONFIG is JSON; beside Joey NMT's own keys it
holds "comparison".
"""

import functools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import joeynmt.prediction
import joeynmt.training
import torch
from benchmark_models import joeynmt_drops_as_the_paper
from benchmarking import versions
from joeynmt.helpers import make_model_dir, set_seed


class Clock:
    """A line for each update in clock.jsonl, for each validation in validations.jsonl."""

    def __init__(self, folder: Path) -> None:
        self.updates = (folder / "clock.jsonl").open("w", encoding="utf-8")
        self.validations = (folder / "validations.jsonl").open("w", encoding="utf-8")
        self.src = self.tgt = 0  # tokens of the update under way, eos counted
        self.start()

    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def update(self, step: int) -> None:
        record = {
            "step": step,
            "seconds": round(time.perf_counter() - self.wall, 4),
            "cpu_seconds": round(time.process_time() - self.cpu, 4),
            "src": self.src,
            "tgt": self.tgt,
        }
        self.updates.write(json.dumps(record) + "\n")
        self.updates.flush()
        self.src = self.tgt = 0

    def validation(self, step: int, perplexity: float, hypotheses: Sequence[str]) -> None:
        record = {"step": step, "perplexity": perplexity, "pieces": list(hypotheses)}
        self.validations.write(json.dumps(record, ensure_ascii=False) + "\n")
        self.validations.flush()


def train(config: dict[str, Any]) -> None:
    comparison = config.pop("comparison")
    folder = Path(config["model_dir"])
    make_model_dir(folder)
    manager = joeynmt.training.TrainManager = change_training(comparison, Clock(folder))
    set_seed(config["random_seed"])
    joeynmt.training.train(rank=0, world_size=None, cfg=config, skip_test=True)
    steps = sorted(int(path.stem) for path in folder.glob("[0-9]*.ckpt"))
    if steps[-1] < config["training"]["updates"]:  # Joey NMT ends quietly when it is interrupted
        raise SystemExit(f"interrupted at update {steps[-1]}")
    about = {
        "parameters": sum(w.numel() for w in manager.weights),
        "checkpoints": steps,
        "versions": versions(["joeynmt", "torch"]),
    }
    partial = folder / ".about.partial"
    partial.write_text(json.dumps(about) + "\n", encoding="utf-8")
    partial.replace(folder / "about.json")


def change_training(comparison: dict[str, Any], clock: Clock) -> Any:
    """TrainManager, and what its module uses, with the changes that the top of this file names."""
    original_predict = joeynmt.training.predict
    original_optimizer = joeynmt.training.build_optimizer

    def build_optimizer(*args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        optimizer = original_optimizer(*args, **kwargs)
        for group in optimizer.param_groups:
            group["eps"] = comparison["eps"]
        return optimizer

    def predict(model: Any, *args: Any, **kwargs: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        smoothing = model.loss_function.smoothing
        model.loss_function = ("crossentropy", 0.0)
        found = original_predict(model, *args, **kwargs)
        model.loss_function = ("crossentropy", smoothing)
        clock.validation(Manager.steps, found[0]["ppl"], found[2])
        clock.wall += time.perf_counter() - wall
        clock.cpu += time.process_time() - cpu
        return found

    class Manager(joeynmt.training.TrainManager):  # type: ignore[misc]
        weights: Sequence[torch.Tensor] = ()
        steps = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            draw_attention_as_mt(self.model)
            joeynmt_drops_as_the_paper(self.model)
            Manager.weights = list(self.model.parameters())
            follow = self.scheduler.step  # called behind every update

            def step(done: int) -> None:
                follow(done)
                clock.update(done + 1)
                Manager.steps = done + 1

            self.scheduler.step = step

        def train_and_validate(self, *args: Any, **kwargs: Any) -> None:
            clock.start()
            super().train_and_validate(*args, **kwargs)

        def _train_step(self, batch: Any) -> Any:
            clock.src += int(batch.src_length.sum())
            clock.tgt += batch.ntokens
            return super()._train_step(batch)

        def _validate(self, valid_data: Any) -> None:
            if self.stats.steps % comparison["validate_every"] == 0:
                super()._validate(valid_data)
            else:
                self._save_checkpoint(False, float("nan"))

    joeynmt.training.build_optimizer = build_optimizer
    joeynmt.training.predict = predict
    return Manager


def draw_attention_as_mt(model: torch.nn.Module) -> None:
    """Xavier-uniform queries, keys and values get a gain of 1/sqrt(2)."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_layer.weight", "k_layer.weight", "v_layer.weight")):
                weight.mul_(2**-0.5)


def average(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights in several checkpoints."""
    states = [torch.load(path, map_location="cpu")["model_state"] for path in paths]

    def mean(name: str) -> torch.Tensor:
        total = functools.reduce(torch.add, (state[name].double() for state in states))
        return (total / len(states)).to(states[0][name].dtype)

    return {name: mean(name) for name in states[0]}


def decode(config: dict[str, Any], split: str, count: str) -> None:
    """Write hypotheses-COUNT.dev or .test, in pieces, by the mean of the last checkpoints."""
    config.pop("comparison")
    folder = Path(config["model_dir"])
    steps = json.loads((folder / "about.json").read_text("utf-8"))["checkpoints"][-int(count) :]
    if len(steps) < int(count):
        raise SystemExit(f"{folder}: {count} checkpoints are not there")
    mean = folder / f"average-{count}-{split}.ckpt"
    torch.save({"model_state": average([folder / f"{step}.ckpt" for step in steps])}, mean)
    config["testing"]["load_model"] = str(mean)
    for other in {"dev", "test"} - {split}:
        del config["data"][other]
    joeynmt.prediction.test(config, output_path=str(folder / f"hypotheses-{count}"))
    mean.unlink()


if __name__ == "__main__":
    _, task, path, *rest = sys.argv
    {"train": train, "decode": decode}[task](json.loads(Path(path).read_text("utf-8")), *rest)
