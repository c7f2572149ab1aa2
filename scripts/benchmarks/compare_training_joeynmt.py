"""Joey NMT's side of `compare_training.py`, which writes its configuration and starts it.

Run by Joey NMT's interpreter:

PYTHON scripts/benchmarks/compare_training_joeynmt.py train CONFIG
PYTHON scripts/benchmarks/compare_training_joeynmt.py decode CONFIG SPLIT COUNT

The second command translates with the mean of the last COUNT checkpoints. docs/performance.md says
what this script changes in Joey NMT. CONFIG is JSON; beside Joey NMT's own keys it holds
"comparison".
"""

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
from benchmarking import JsonLines, versions
from joeynmt.helpers import make_model_dir, set_seed


class Clock:
    """Measures the time of updates, and writes them and the validations to files."""

    def __init__(self, folder: Path) -> None:
        self.updates = JsonLines(folder / "clock.jsonl")
        self.validations = JsonLines(folder / "validations.jsonl")
        self.src = self.tgt = 0  # tokens of the current update, with eos
        self.start()

    def start(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def update(self, step: int) -> None:
        seconds = round(time.perf_counter() - self.wall, 4)
        cpu_seconds = round(time.process_time() - self.cpu, 4)
        self.updates.write(
            step=step, seconds=seconds, cpu_seconds=cpu_seconds, src=self.src, tgt=self.tgt
        )
        self.src = self.tgt = 0


def train(config: dict[str, Any]) -> None:
    comparison = config.pop("comparison")
    folder = Path(config["model_dir"])
    make_model_dir(folder)
    manager = joeynmt.training.TrainManager = change_training(comparison, Clock(folder))
    set_seed(config["random_seed"])
    joeynmt.training.train(rank=0, world_size=None, cfg=config, skip_test=True)
    steps = sorted(int(path.stem) for path in folder.glob("[0-9]*.ckpt"))
    if steps[-1] < config["training"]["updates"]:  # an interruption raises no error
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
    """Make the changes that docs/performance.md lists; returns the changed TrainManager."""
    change_optimizer(comparison["eps"])
    manager = changed_manager(clock, comparison["validate_every"])
    change_validation(clock, manager)
    return manager


def change_optimizer(eps: float) -> None:
    """Give Adam its eps, for which Joey NMT's configuration has no key."""
    original = joeynmt.training.build_optimizer

    def build_optimizer(*args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        optimizer = original(*args, **kwargs)
        for group in optimizer.param_groups:
            group["eps"] = eps
        return optimizer

    joeynmt.training.build_optimizer = build_optimizer


def change_validation(clock: Clock, manager: Any) -> None:
    """Validate without smoothing the loss, write what it finds and leave its time out."""
    original = joeynmt.training.predict

    def predict(model: Any, *args: Any, **kwargs: Any) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        smoothing = model.loss_function.smoothing
        model.loss_function = ("crossentropy", 0.0)
        outputs = original(model, *args, **kwargs)
        model.loss_function = ("crossentropy", smoothing)
        perplexity, pieces = outputs[0]["ppl"], list(outputs[2])
        clock.validations.write(step=manager.steps, perplexity=perplexity, pieces=pieces)
        clock.wall += time.perf_counter() - wall
        clock.cpu += time.process_time() - cpu
        return outputs

    joeynmt.training.predict = predict


def changed_manager(clock: Clock, validate_every: int) -> Any:
    """A TrainManager whose model is that of mt, which counts and which saves more often."""

    class Manager(joeynmt.training.TrainManager):  # type: ignore[misc]
        weights: Sequence[torch.Tensor] = ()
        steps = 0

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            draw_attention_as_mt(self.model)
            joeynmt_drops_as_the_paper(self.model)
            Manager.weights = list(self.model.parameters())
            original_step = self.scheduler.step  # Joey NMT calls it after every update

            def step(done: int) -> None:
                original_step(done)
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
            if self.stats.steps % validate_every == 0:
                super()._validate(valid_data)
            else:
                self._save_checkpoint(False, float("nan"))

    return Manager


def draw_attention_as_mt(model: torch.nn.Module) -> None:
    """Scale the Xavier-uniform weights of queries, keys and values by a gain of 1/sqrt(2)."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_layer.weight", "k_layer.weight", "v_layer.weight")):
                weight.mul_(2**-0.5)


def average(paths: Sequence[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights in several checkpoints."""
    states = [torch.load(path, map_location="cpu")["model_state"] for path in paths]
    return {
        name: torch.stack([state[name].double() for state in states]).mean(dim=0).to(weight.dtype)
        for name, weight in states[0].items()
    }


def decode(config: dict[str, Any], split: str, count: str) -> None:
    """Write hypotheses-COUNT.dev or .test, in pieces, with the mean of the last checkpoints."""
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
