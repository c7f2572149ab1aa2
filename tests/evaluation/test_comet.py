"""COMET's real package, where the extra is installed, with a small model of random weights."""

import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

from mt.evaluation.comet import Comet

pytest.importorskip("comet", reason="the extra 'comet' is not installed")

SOURCES = ["Where do you live?", "No.", "The dog sees the cat, and the cat sees the dog."]
HYPOTHESES = ["Wo wohnst du?", "Nein.", "Der Hund sieht die Katze."]
REFERENCES = ["Wo lebst du?", "Nein.", "Der Hund sieht die Katze, und die Katze sieht den Hund."]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as the package leaves one: checkpoints/model.ckpt below hparams.yaml."""
    from comet.models import RegressionMetric
    from transformers import BertConfig, BertTokenizerFast

    folder = tmp_path_factory.mktemp("comet")
    encoder = folder / "encoder"
    encoder.mkdir()
    letters = [*string.ascii_letters, *".,?"]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{x}" for x in letters)]
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n")
    BertTokenizerFast(str(encoder / "vocab.txt"), do_lower_case=False).save_pretrained(encoder)
    small: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    config = BertConfig(vocab_size=len(words), num_attention_heads=2, **small)
    config.save_pretrained(encoder)
    torch.manual_seed(1)
    metric = RegressionMetric(
        encoder_model="BERT",
        pretrained_model=str(encoder),
        hidden_sizes=[8],
        load_pretrained_weights=False,
        local_files_only=True,
    )
    (folder / "hparams.yaml").write_text("class_identifier: regression_metric\n")
    (folder / "checkpoints").mkdir()
    content = {
        "state_dict": metric.state_dict(),
        "hyper_parameters": dict(metric.hparams),
        "pytorch-lightning_version": pl.__version__,
    }
    torch.save(content, folder / "checkpoints" / "model.ckpt")
    return folder / "checkpoints" / "model.ckpt"


def test_the_score_is_the_packages(model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import comet

    comet_metric = Comet(str(model))
    score, sentences = comet_metric(SOURCES, HYPOTHESES, REFERENCES)
    assert capfd.readouterr() == ("", "")
    sides = zip(SOURCES, HYPOTHESES, REFERENCES, strict=True)
    samples = [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in sides]
    expected = comet.load_from_checkpoint(str(model)).predict(samples, gpus=0)
    assert sentences == pytest.approx(expected.scores)
    assert len(set(sentences)) == 3
    assert score.value == pytest.approx(expected.system_score) == pytest.approx(sum(sentences) / 3)
    assert 0 < score.interval < max(sentences) - min(sentences)
    assert score.signature.startswith("comet:2.")
    _, sentence_level = comet_metric(SOURCES[::-1], HYPOTHESES[::-1], REFERENCES[::-1])
    assert sentence_level == pytest.approx(sentences[::-1])  # it sorts them by length


def test_its_libraries_are_silent_from_the_first_import_on(model: Path) -> None:
    program = f"from mt.evaluation.comet import Comet; Comet({str(model)!r})(['a'], ['b'], ['c'])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_file_that_is_no_model(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x" / "y" / "model.ckpt"
    path.parent.mkdir(parents=True)
    path.write_bytes(model.read_bytes())
    with pytest.raises(ValueError, match=r"COMET model can be loaded: hparams\.yaml file is"):
        Comet(str(path))
