"""Every configuration composes, says what each number is, and holds the paper's defaults."""

import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import pytorch_lightning as pl
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import OmegaConf, open_dict

from mt.data.packing import pack
from mt.data.preprocessing import PairFilter
from mt.data.readers import FileReader, HubReader, PhrasebookReader
from mt.data.text_reader import TextReader
from mt.inference.options import SearchOptions
from mt.inference.translator import Translator
from mt.model.decoder_only import make_model
from mt.model.transformer import PAPER, Transformer
from mt.training import run_dir  # noqa: F401  # it registers the resolver of hydra.run.dir
from mt.training.config import DataConfig, TrainConfig, read_config
from mt.training.lightning_module import TranslationModule
from mt.training.loss import smoothed_cross_entropy
from mt.utils import hydra_app

CONF = Path(hydra_app.CONF)
FILES = sorted(CONF.rglob("*.yaml"))
# Of every model but for the variations of table 3.
PLAIN = {
    "d_k": None, "learned_positions": None, "compile": False,
    "architecture": "encoder_decoder", **PAPER,
}  # fmt: skip
# Keys of conf/data that are not the reader's own.
PIPELINE = {
    "reader", "clean", "tokens_per_step", "max_tokens", "limit", "noise", "validation_limit",
    "workers", "cache_dir",
}  # fmt: skip


def members(group: str) -> list[str]:
    return sorted(path.stem for path in (CONF / group).glob("[!_]*.yaml"))


@pytest.fixture(autouse=True)
def _hydra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


def resolved(name: str, *overrides: str) -> dict[str, Any]:
    cfg = compose(name, list(overrides))
    content = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(content, dict)
    return content  # type: ignore[return-value]


def settings(*given: str) -> tuple[TrainConfig, Any, Any]:
    """What mt.train reads of a command line; Hydra's choices and overrides."""
    cfg = compose("train", list(given), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    choices, overrides = cfg.hydra.runtime.choices, cfg.hydra.overrides.task
    with open_dict(cfg):
        del cfg["hydra"]
    return read_config(cfg), choices, overrides


def parameters(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


# Composition


def test_there_is_something_to_choose() -> None:
    assert members("data") == ["files", "multi30k", "phrasebook", "text", "wmt14"]
    sizes = ["base", "big", "tiny"]
    rivals = ["decoder_only", "decoder_only_big", "decoder_only_tiny"]
    assert members("model") == sorted([*sizes, *rivals])
    assert "quickstart" in members("experiment")


@pytest.mark.parametrize(
    ("data", "model"), list(itertools.product(members("data"), members("model")))
)
def test_every_combination_composes(data: str, model: str) -> None:
    cfg = resolved("train", f"data={data}", f"model={model}")
    assert cfg["model"].pop("compile") is False  # the only key that is not the Transformer's
    make_model(**{**cfg["model"], "vocab_size": 8, "N": 1, "d_ff": 8})
    PairFilter(**cfg["data"]["clean"])
    instantiate(cfg["data"]["reader"])
    SearchOptions(cfg["search"]["beam_size"], cfg["search"]["alpha"])


@pytest.mark.parametrize("data", members("data"))
def test_evaluation_composes_with_every_data(data: str) -> None:
    cfg = resolved("evaluate", f"data={data}")
    instantiate(cfg["data"]["reader"])
    assert cfg["search"]["beam_size"] == [1, 4]  # greedy and the paper's beam side by side
    assert cfg["search"]["alpha"] is None  # the model's own


@pytest.mark.parametrize("experiment", members("experiment"))
def test_every_experiment_composes_and_is_read(experiment: str) -> None:
    config, choices, overrides = settings(f"experiment={experiment}", "seed=7")
    plain = resolved("train", f"experiment={experiment}") | {"seed": 7}
    assert config.resolved.keys() == resolved("train").keys() - {"start_from"}
    assert config.resolved == {key: plain[key] for key in config.resolved}
    for section in ("training", "search", "trainer"):
        assert getattr(config, section) == plain[section]
    assert config.model | {"compile": config.compile} == plain["model"]
    assert dataclasses.asdict(config.data.clean) == plain["data"]["clean"]
    assert config.data.reader == instantiate(plain["data"]["reader"])
    assert (config.seed, config.data.limit) == (7, plain["data"]["limit"])
    assert (config.data_name, config.overrides) == (choices["data"], list(overrides))


VARIATIONS = {  # table 3
    "base": {},
    **{f"A_h{h}": {"h": h} for h in (1, 4, 16, 32)},
    **{f"B_d_k{d_k}": {"d_k": d_k} for d_k in (16, 32)},
    **{f"C_N{N}": {"N": N} for N in (2, 4, 8)},
    **{f"C_d_model{d_model}": {"d_model": d_model} for d_model in (256, 1024)},
    **{f"C_d_ff{d_ff}": {"d_ff": d_ff} for d_ff in (1024, 4096)},
    "D_P_drop0": {"P_drop": 0.0},
    "D_P_drop02": {"P_drop": 0.2},
    "D_eps_ls0": {"eps_ls": 0.0},
    "D_eps_ls02": {"eps_ls": 0.2},
    "E_learned": {"learned_positions": 512},
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3},
}


@functools.cache
def unvaried() -> dict[str, Any]:
    return resolved("train")


def test_the_variations_are_all_of_table_3() -> None:
    assert members("variation") == sorted(VARIATIONS)


@pytest.mark.parametrize("variation", sorted(VARIATIONS))
def test_a_variation_changes_what_table_3_changes_and_trains(variation: str) -> None:
    plain, cfg = unvaried(), resolved("train", f"variation={variation}")
    before, now = ({**c["model"], **c["training"]} for c in (plain, cfg))
    changes = VARIATIONS[variation]
    assert now == {**before, **changes}
    assert {**cfg, "model": 0, "training": 0} == {**plain, "model": 0, "training": 0}

    small = {name: now[name] // 8 for name in ("d_model", "d_ff")}
    shape = {name: value for name, value in cfg["model"].items() if name != "compile"}
    model = make_model(50, **{**shape, **small, "N": 1})
    before_step = [p.detach().clone() for p in model.parameters()]
    src, tgt, labels = (torch.randint(4, 50, (2, 5)) for _ in range(3))
    states = model.states(pack(src), pack(tgt))
    weight, eps_ls = model.embedding.weight, now["eps_ls"]
    loss, _ = smoothed_cross_entropy(states, weight, labels.flatten(), eps_ls)
    loss.backward()
    torch.optim.Adam(model.parameters(), lr=1e-3).step()
    assert loss.isfinite()
    for old, p in zip(before_step, model.parameters(), strict=True):
        assert p.isfinite().all()
        assert not torch.equal(old, p)


def test_a_variation_stands_on_any_model_and_experiment_and_can_be_changed_in_turn() -> None:
    cfg = resolved("train", "experiment=quickstart", "variation=C_N2", "model.d_ff=100")
    assert (cfg["model"]["N"], cfg["model"]["d_model"], cfg["model"]["d_ff"]) == (2, 128, 100)
    cfg = resolved("train", "experiment=wmt14_big", "variation=D_P_drop02")
    assert (cfg["model"]["P_drop"], cfg["model"]["d_model"]) == (0.2, 1024)


@pytest.mark.parametrize(
    "override",
    ["data=x", "model=x", "experiment=x", "experiment=quickstrat", "variation=C_N3"],
)
def test_a_choice_that_does_not_exist_is_refused(override: str) -> None:
    with pytest.raises(Exception, match=f"Could not find '{override.replace('=', '/')}'"):
        compose("train", [override])


def test_all_data_have_the_same_keys() -> None:
    sections = [resolved("train", f"data={name}")["data"] for name in members("data")]
    assert all(section.keys() >= PIPELINE for section in sections)
    assert all(section["clean"].keys() == sections[0]["clean"].keys() for section in sections)


def test_a_run_directory_is_named_by_data_model_and_time() -> None:
    cfg = compose("train", ["data=files", "model=big"], return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    folder = OmegaConf.select(cfg, "hydra.run.dir")
    assert re.fullmatch(r"outputs/files-big/\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", folder)
    assert cfg.hydra.job.chdir is False


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MT_CACHE", raising=False)
    assert resolved("train")["data"]["cache_dir"] == "~/.cache/mt"
    monkeypatch.setenv("MT_CACHE", "/large/disk")
    for data in members("data"):
        assert resolved("train", f"data={data}")["data"]["cache_dir"] == "/large/disk"


def test_an_empty_name_of_the_cache_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MT_CACHE", "")
    config, _, _ = settings("data=phrasebook")
    assert config.data.cache_dir == str(Path("~/.cache/mt").expanduser())


# Every line is explained


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONF)))
def test_every_value_has_a_comment_with_words(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("# ") and len(line) > 20 for line in lines), "what the file is"
    inside_hydra = False
    for line in lines:
        inside_hydra = line.startswith("hydra:") or (inside_hydra and line.startswith(" "))
        value = re.match(r"\s*(?!- )[\w.]+: +[^#\s]", line)
        if not value or inside_hydra or "${data." in line or line.startswith("defaults: "):
            continue
        comment = re.search(r" # (.*)$", line)
        assert comment, f"{path.name}: no comment: {line}"
        assert re.search(r"[a-zA-Z]{3}", comment[1]), (
            f"{path.name}: a comment without words: {line}"
        )


# Keys are parameter names


@pytest.mark.parametrize("model", members("model"))
def test_model_keys_are_the_transformers(model: str) -> None:
    keys = set(resolved("train", f"model={model}")["model"])
    assert keys - {"compile", "architecture"} == parameters(Transformer) - {"vocab_size"}


def test_training_keys_are_the_modules() -> None:
    keys = set(resolved("train")["training"])
    assert keys < parameters(TranslationModule)
    names = {"eps_ls", "warmup_steps", "beta1", "beta2", "eps", "lr_factor", "loss_on_source"}
    assert names == keys


@pytest.mark.parametrize("data", members("data"))
def test_data_keys_are_the_readers_and_the_rules(data: str) -> None:
    """The reader takes each of its parameters from the key of the same name."""
    cfg = compose("train", [f"data={data}"]).data
    assert set(cfg.clean) == parameters(PairFilter)
    readers = {"files": FileReader, "phrasebook": PhrasebookReader, "text": TextReader}
    reader = readers.get(data, HubReader)
    assert set(cfg) - PIPELINE == parameters(reader)
    # Old runs name the hub's reader by the module where it was, so every run does.
    module = "mt.data.readers" if reader is HubReader else reader.__module__
    assert OmegaConf.to_container(cfg.reader) == {
        "_target_": f"{module}.{reader.__name__}",
        **{name: f"${{data.{name}}}" for name in parameters(reader)},
    }


def test_a_reader_takes_what_the_user_sets() -> None:
    files = compose("train", ["data=files", "data.train=[a,b]", "data.src=0", "data.tgt=x"])
    reader = hydra_app.instantiate(files, "data.reader")
    assert reader == FileReader(train=["a", "b"], src=0, tgt="x")
    assert type(reader.train) is list


@pytest.mark.parametrize(
    ("src", "tgt", "languages"),
    [
        ("de", "en", ["de", "en"]),
        ("translation.en", "translation.fr", ["en", "fr"]),
        (0, 1, ["en", "de"]),
        ("0", "1", ["en", "de"]),
    ],
)
def test_the_names_of_columns_are_languages(src: Any, tgt: Any, languages: list[str]) -> None:
    names: Any = SimpleNamespace(src=src, tgt=tgt)
    assert cast("Any", DataConfig.languages).fget(names) == languages


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_search_keys_are_the_translators(name: str) -> None:
    keys = set(resolved(name)["search"])
    options = {field.name for field in dataclasses.fields(SearchOptions)}
    assert keys < parameters(Translator.translate) | options


def test_trainer_keys_are_lightnings() -> None:
    assert set(resolved("train")["trainer"]) < parameters(pl.Trainer)


# The numbers


def test_the_defaults_are_the_papers() -> None:
    cfg = resolved("train")
    base = {"N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "P_drop": 0.1}
    assert cfg["model"] == {**base, **PLAIN}
    assert cfg["training"] == {
        "eps_ls": 0.1,
        "warmup_steps": 4000,
        "beta1": 0.9,
        "beta2": 0.98,
        "eps": 1e-9,
        "lr_factor": 1.0,
        "loss_on_source": False,
    }
    assert cfg["data"]["tokens_per_step"] == 25_000
    assert cfg["trainer"]["max_steps"] == 100_000
    assert cfg["trainer"]["gradient_clip_val"] is None
    assert cfg["tokenizer"]["vocab_size"] == 37_000
    assert cfg["average"] == 5
    assert (cfg["search"]["beam_size"], cfg["search"]["alpha"]) == (4, 0.6)
    assert instantiate(cfg["data"]["reader"]) == HubReader("wmt/wmt14", "de-en", "en", "de")


def test_numbers_are_numbers() -> None:
    """YAML reads 1e-9 as a text: it must be written 1.0e-9."""
    training = resolved("train")["training"]
    assert all(isinstance(value, int | float) for value in training.values())


def test_big_is_the_papers() -> None:
    cfg = resolved("train", "model=big")
    big = {"N": 6, "d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3}
    assert cfg["model"] == {**big, **PLAIN}


@pytest.mark.parametrize(
    ("name", "steps", "average", "P_drop"), [("base", 100_000, 5, 0.1), ("big", 300_000, 20, 0.3)]
)
def test_the_papers_experiments_are_complete(
    name: str, steps: int, average: int, P_drop: float
) -> None:
    cfg = resolved("train", f"experiment=wmt14_{name}")
    plain = resolved("train", f"model={name}")
    assert (cfg["trainer"]["max_steps"], cfg["average"]) == (steps, average)
    assert (cfg["model"], cfg["model"]["P_drop"]) == (plain["model"], P_drop)
    assert cfg["checkpoint_every"] == {"base": 1500, "big": 600}[name]
    for key in ("data", "training", "search", "tokenizer"):  # the paper's, whatever the defaults
        assert cfg[key] == plain[key]


def test_quickstart_is_the_phrasebook_and_a_small_model() -> None:
    cfg = compose("train", ["experiment=quickstart"], return_hydra_config=True)
    assert cfg.hydra.runtime.choices["data"] == "phrasebook"
    assert cfg.hydra.runtime.choices["model"] == "tiny"
    assert instantiate(cfg.data.reader) == PhrasebookReader()
    assert cfg.model.d_model < 512
    assert cfg.trainer.max_steps < 10_000
    assert cfg.trainer.devices == 1
    # an experiment changes numbers; the paper's others stay
    assert (cfg.training.eps_ls, cfg.training.beta2, cfg.search.alpha) == (0.1, 0.98, 0.6)


@pytest.mark.parametrize(("name", "data"), [("multi30k", "multi30k"), ("tatoeba", "files")])
def test_public_experiments_take_files_too(name: str, data: str) -> None:
    cfg = compose("train", [f"experiment={name}"], return_hydra_config=True)
    assert cfg.hydra.runtime.choices["data"] == data
    files = resolved("train", f"experiment={name}", "data=files", "data.train=a/b")
    plain = resolved("train", f"experiment={name}")
    assert instantiate(files["data"]["reader"]) == FileReader(train="a/b")
    assert files["data"]["tokens_per_step"] == plain["data"]["tokens_per_step"] == 4096
    assert files["model"] == plain["model"]


def test_an_experiment_can_be_changed_in_turn() -> None:
    cfg = resolved("train", "experiment=quickstart", "model=base", "trainer.max_steps=7")
    assert cfg["model"]["d_model"] == 512
    assert cfg["trainer"]["max_steps"] == 7
    assert instantiate(cfg["data"]["reader"]) == PhrasebookReader()
