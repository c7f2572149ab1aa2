"""No setting takes a value that makes no sense, and no name that nothing reads is accepted.

The settings are composed once; each case changes one and goes as far as a run goes before it reads
its data.
"""

import copy
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PAIRS, write_lines
from fuzz.mutations import VALUES
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf, open_dict

from mt.data.readers import PhrasebookReader
from mt.training import setup
from mt.training.config import ALLOWED, TrainConfig, read_config
from mt.utils import console, hydra_app

SMALL = """
    data=files data.train=corpus/train data.validation=corpus/valid data.cache_dir=cache model=tiny
    trainer.accelerator=cpu trainer.devices=1 trainer.max_steps=100 checkpoint_every=10
""".split()  # noqa: SIM905
HUGE = 10**22
ODD = [math.nan, math.inf, -1, HUGE, "", " ", [], [1, 2], {"a": 1}, True]
MEANT = {  # values of ODD that make sense
    "data.clean.max_ratio": [HUGE],
    "search.batch_size": [HUGE],  # a number of tokens bounds the batches as well
    "training.lr_factor": [HUGE],
    "trainer.gradient_clip_val": [HUGE],
    "data.test": ["", " ", [1, 2]],
    "data.reader.test": ["", " ", [1, 2]],
    **{
        name: [True]
        for name in (
            "data.clean.duplicates", "data.clean.empty", "data.clean.identical", "data.phrasebook",
            "data.reader.phrasebook", "model.compile", "model.scaled_scores",
            "model.tied_embeddings", "trainer.benchmark",
            "trainer.detect_anomaly", "trainer.deterministic", "trainer.inference_mode",
            "trainer.sync_batchnorm", "tokenizer.byte_fallback", "tokenizer.split_digits",
        )
    },
}  # fmt: skip


class Reached(Exception):
    """The settings were accepted."""


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DictConfig]:
    folder = tmp_path_factory.mktemp("settings")
    for name, pairs in (("train", PAIRS), ("valid", PAIRS[:6])):
        for side, suffix in enumerate(("en", "de")):
            write_lines(folder / "corpus" / f"{name}.{suffix}", [pair[side] for pair in pairs])
    GlobalHydra.instance().clear()
    with (
        initialize_config_dir(hydra_app.CONF, version_base="1.3"),
        pytest.MonkeyPatch.context() as m,
    ):
        m.chdir(folder)
        m.setenv("CXX", "true")  # there is a compiler
        cfg = compose("train", SMALL, return_hydra_config=True)
        HydraConfig.instance().set_config(cfg)
        with open_dict(cfg):
            del cfg["hydra"]
        yield cfg
    GlobalHydra.instance().clear()


@pytest.fixture
def accept(composed: DictConfig, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainConfig]:
    """Read the settings with these changes, as far as the tokenizer; raises what a run would."""

    def reached(config: TrainConfig, *_: Any) -> None:
        raise Reached(config)

    monkeypatch.setattr(setup, "get_tokenizer", reached)
    monkeypatch.setattr(PhrasebookReader, "identity", lambda *_: [])  # it reads all pairs

    def call(**changes: Any) -> TrainConfig:
        cfg = copy.deepcopy(composed)
        for name, value in changes.items():
            OmegaConf.update(cfg, name, value, merge=False, force_add=True)
        try:
            setup.set_up(read_config(cfg), Path("run"))
        except Reached as end:
            return end.args[0]
        raise AssertionError("set_up did not come to the tokenizer")

    return call


def names(section: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in section.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from names(value, f"{prefix}{key}.")


def all_names() -> list[str]:
    with initialize_config_dir(hydra_app.CONF, version_base="1.3"):
        train: Any = OmegaConf.to_container(compose("train", ["data=files"]))
    keys = [name for name in names(train) if not name.endswith("_target_")]
    return sorted({*keys, *(f"trainer.{name}" for name in ALLOWED)})


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


def test_the_settings_that_the_others_change_are_right(accept: Any) -> None:
    assert accept().average == 5


@pytest.mark.parametrize("name", all_names())
def test_a_value_that_makes_no_sense_is_refused_in_one_line(name: str, accept: Any) -> None:
    for value in ODD:
        if any(same(value, meant) for meant in MEANT.get(name, [])):
            accept(**{name: value})
            continue
        with pytest.raises(hydra_app.USER_ERRORS) as refused:
            accept(**{name: value})
        assert "\n" not in str(refused.value).strip(), (value, refused.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tokenizer.vocab", "did you mean tokenizer.vocab_size"),
        ("model.n", "did you mean model.N?"),
        ("beam", "did you mean search.beam_size?"),
        ("epochs", "did you mean trainer.max_steps?"),
        ("training.lr", "did you mean training.lr_factor?"),
        ("data.dev", "did you mean data.validation?"),
        ("training.warmup", "did you mean training.warmup_steps"),
        ("training.seed", "did you mean seed"),
        ("model.n_heads", "model.n_heads is no setting"),
        ("data.foo", "--cfg job prints all settings"),
        ("data.path", "data.path is a setting of data=multi30k and data=wmt14 only"),
        ("data.clean.max_len", "did you mean data.clean.max_length"),
        ("search.beam", "did you mean search.beam_size"),
        ("trainer.max_stepz", "did you mean trainer.max_steps"),
        ("max_steps", "did you mean trainer.max_steps"),
    ],
)
def test_a_name_that_nothing_reads_is_refused(name: str, message: str, accept: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is ") as refused:
        accept(**{name: 1})
    assert message in str(refused.value)


def test_a_name_to_which_another_setting_refers_is_read(accept: Any) -> None:
    """As a reader of the user's own has."""
    assert accept(**{"data.corpus": "corpus", "data.test": "${data.corpus}/test"}).average == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.tgt": "en"}, "data.src=en and data.tgt=en: the source is the target"),
        ({"data.train": ["corpus/train.en", "corpus/../corpus/train.en"]}, "are one file: the"),
        ({"data.src": 0, "data.tgt": 1}, "data.train=corpus/train: not a .tsv or .jsonl file, so"),
        ({"data.validation": "corpus/valid.en"}, "corpus/valid.en: neither .tsv nor .jsonl"),
        ({"trainer.min_steps": 5}, "trainer.min_steps is set by mt.train and cannot be changed"),
        ({"trainer.max_time": 5}, "trainer.max_time=5: must be a text, names with values or null"),
        ({"trainer.strategy": "nonsense"}, "trainer: You selected an invalid strategy name"),
        ({"trainer.devices": 5000}, "trainer.devices=5000: must be a number from -1 to 256"),
        ({"search.alpha": 1e300}, r"alpha=1e\+300: must be"),
        ({"model.d_model": 10**8}, "d_model=100000000: must be a whole number from 1 to"),
        ({"model.d_model": 2**22, "model.h": 8}, "parameters: training it takes [0-9,]+ GB of mem"),
        ({"tokenizer.vocab_size": 999999999999}, "tokenizer.vocab_size=999999999999: must be"),
        ({"training.eps": 0}, "eps=0: must be a number from 1e-30 up to"),  # 0 / 0 in Adam
        ({"init_from": ""}, "init_from is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    changes: dict[str, Any], message: str, accept: Any
) -> None:
    with pytest.raises(ValueError, match=message):
        accept(**changes)


def test_two_names_of_one_file_are_one_file(accept: Any) -> None:
    link = Path("corpus/link.de")
    link.unlink(missing_ok=True)
    for make in (link.symlink_to, link.hardlink_to):
        make(Path("corpus/train.en").absolute())
        with pytest.raises(ValueError, match="are one file"):
            accept(**{"data.train": ["corpus/train.en", str(link)]})
        link.unlink()


@pytest.fixture
def messages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What setup writes to the log."""
    texts: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(setup.log, level, texts.append)
    return texts


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),  # 100 steps, a checkpoint every 10, average 5
        ({"average": 10}, None),
        (
            {"average": 99_999},
            "the model will be the mean of 10, not of average=99,999: 100 steps with "
            "checkpoint_every=10 make no more checkpoints",
        ),
        ({"trainer.max_steps": 31}, "the model will be the mean of 4, not of average=5: 31 steps"),
        ({"checkpoint_every": "10 min", "average": 99_999}, None),  # nobody knows yet
        ({"training.warmup_steps": 101}, "the learning rate only rises: 100 steps are fewer than"),
        (
            {"validate_every": 101},
            "the only validation comes at the end and makes no best.ckpt: 100",
        ),
    ],
)
def test_what_a_short_run_lacks_is_announced(
    changes: dict[str, Any], message: str | None, accept: Any, messages: list[str]
) -> None:
    accept(**{"training.warmup_steps": 20, "validate_every": 20, **changes})
    assert len(messages) == (message is not None)
    assert all(text.startswith(message or "") for text in messages)


def test_a_resumed_run_may_have_checkpoints_to_average(accept: Any, messages: list[str]) -> None:
    config = accept(**{"training.warmup_steps": 20, "validate_every": 20, "average": 99_999})
    assert len(messages) == 1
    setup._announce_few_steps(config, is_resumed=True)
    assert len(messages) == 1


@given(name=st.sampled_from(all_names()), value=VALUES)
@settings(
    max_examples=30, deadline=None, database=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_any_value_is_accepted_or_refused_in_one_line(name: str, value: Any, accept: Any) -> None:
    message = ""
    try:
        accept(**{name: value})
    except hydra_app.USER_ERRORS as refused:
        message = console.describe(refused)
    assert "\n" not in message.strip()
