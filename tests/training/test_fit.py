"""What a run says of the model that it wrote, tested with a stand-in of the run."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mt.training.fit import _validate_model


def validated(last_ppl: float, mean_ppl: float, num_paths: int, val_loss: float) -> dict[str, Any]:
    """The scores of a run whose last weights and whose averaged model have these perplexities."""
    trainer = SimpleNamespace(callback_metrics={"val_ppl": last_ppl}, precision="16-mixed")

    def validate(*_: Any, **__: Any) -> None:
        trainer.callback_metrics = {"val_ppl": mean_ppl, "val_loss": val_loss}

    trainer.validate = validate
    run: Any = SimpleNamespace(trainer=trainer, module=None, data=None)
    return _validate_model(run, [Path(f"step-{n}.ckpt") for n in range(1, num_paths + 1)])


@pytest.mark.parametrize(
    ("last_ppl", "mean_ppl", "num_paths", "val_loss", "warning"),
    [
        (3, 2, 2, 0.7, None),
        (2, 3, 2, 1.1, "the mean of 2 checkpoints is worse than the weights were"),
        (2, 3, 1, 1.1, None),  # a single checkpoint is no mean
        (2, 2, 2, 0.7, None),
        (2, math.nan, 2, math.nan, "Train with bf16-mixed or 32-true"),
    ],
)
def test_the_model_that_was_written_is_warned_about(
    last_ppl: float, mean_ppl: float, num_paths: int, val_loss: float, warning: str | None,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("mt.training.fit.log.propagate", True)
    scores = validated(last_ppl, mean_ppl, num_paths, val_loss)
    assert scores == pytest.approx({"validation perplexity": mean_ppl}, nan_ok=True)
    if warning is None:
        assert not caplog.messages
    else:
        (message,) = caplog.messages
        assert warning in message
