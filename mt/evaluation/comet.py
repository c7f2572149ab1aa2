"""COMET (Rei et al. 2020), a learned metric that also sees the source. It is an optional extra."""

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from mt.evaluation.metrics import COMET, Score, package_version
from mt.utils.console import install_hint
from mt.utils.hashes import sha256_of


class Comet:
    """A COMET model.

    ``model`` is the file of a COMET checkpoint, or the name of a model, which the package finds
    where it has downloaded it. Raises ValueError when the package or the model cannot be loaded.
    """

    def __init__(self, model: str, gpu: bool = False) -> None:
        try:
            with _quiet():
                import comet
        except ImportError as error:
            reason = "" if error.name == "comet" else f" completely ({error})"
            hint = install_hint("comet")
            raise ValueError(f"comet={model}: COMET is not installed{reason}: {hint}") from None
        try:
            path = model if Path(model).is_file() else comet.download_model(model)
            with _quiet():
                self._model = comet.load_from_checkpoint(path)
        except Exception as error:  # the package and its libraries raise many kinds
            raise ValueError(
                f"comet={model}: no such COMET model can be loaded: {_one_line(error)}"
            ) from None
        version = package_version("unbabel-comet")
        name = Path(model).name if path == model else model
        self.signature = f"comet:{version}|model:{name}|sha256:{sha256_of(path)[:12]}"
        self._gpus = int(gpu)

    def __call__(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> tuple[Score, list[float]]:
        """The score of the whole, and of every sentence. Raises ValueError when it fails."""
        triples = zip(sources, hypotheses, references, strict=True)
        samples = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in triples]
        try:
            with _quiet():
                prediction = self._model.predict(
                    samples, batch_size=16, gpus=self._gpus, progress_bar=sys.stderr.isatty()
                )
        except Exception as error:  # e.g. too little memory beside the translation model
            raise ValueError(f"COMET has failed: {_one_line(error)}") from error
        scores = [float(score) for score in prediction.scores]
        texts = [str(score) for score in scores]
        half_width = COMET.score_with_interval(texts, texts).interval
        return Score(COMET.name, float(prediction.system_score), self.signature, half_width), scores


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what COMET and its libraries log about each other, and Lightning's advertisements."""
    names = ("comet", "pytorch_lightning.utilities.rank_zero")
    levels = {logging.getLogger(name): logging.getLogger(name).level for name in names}
    for logger in levels:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
