"""How the programs end on a user's mistake, and what they clean up."""

import re
import sys
from pathlib import Path
from typing import Any

import hydra
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

import mt
from mt.utils import hydra_app


def test_a_user_error_is_one_message_and_status_2(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    with pytest.raises(SystemExit) as end, hydra_app.user_errors("mt.x", ValueError):
        raise ValueError("N='six': must be a number")
    assert end.value.code == 2
    assert capsys.readouterr().err == "mt.x: error: N='six': must be a number\n"


def test_the_messages_of_hydra_become_one_line(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    with pytest.raises(SystemExit), hydra_app.user_errors("mt.x", OmegaConfBaseException):
        raise OmegaConfBaseException("Key 'a'\n    is not\n in struct")
    assert capsys.readouterr().err == "mt.x: error: Key 'a' is not in struct\n"


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("data.train=päare.tsv", "data.train='päare.tsv'"),
        ("+a.b=Größe/x-1.en", "+a.b='Größe/x-1.en'"),
        ("data.train=C:/Müller/pairs.tsv", "data.train='C:/Müller/pairs.tsv'"),
        (r"data.train=C:\Müller\pairs.tsv", r"data.train='C:\Müller\pairs.tsv'"),
        ("data.train=pairs.tsv", "data.train=pairs.tsv"),
        ("data.train='päare.tsv'", "data.train='päare.tsv'"),
        ("data.train=[ä.en,b.de]", "data.train=[ä.en,b.de]"),
        ("data.train=ä,b", "data.train=ä,b"),  # the values of a sweep
        ("--config-dir=ä", "--config-dir=ä"),
    ],
)
def test_letters_that_the_grammar_of_hydra_lacks_need_no_quotes(
    typed: str, read: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # which start() sets for its whole process
    monkeypatch.setattr(sys, "argv", ["mt.train", typed])
    monkeypatch.setattr(hydra_app, "_check_argument", lambda argument: None)
    seen: list[str] = []
    hydra_app.start("mt.train", lambda: seen.extend(sys.argv[1:]))
    assert seen == [read]
    if read != typed:
        [override] = OverridesParser.create().parse_overrides(seen)
        assert override.value() == typed.partition("=")[2]


def test_an_argument_that_is_not_utf_8_is_refused(monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["mt.x", "data.train=tr\udce4"])
    with pytest.raises(SystemExit) as end:
        hydra_app.start("mt.x", lambda: None)
    assert end.value.code == 2
    assert capsys.readouterr().err == "mt.x: error: data.train=tr?: is not UTF-8\n"


def test_other_errors_and_a_wish_for_the_traceback_pass(monkeypatch: Any) -> None:
    with pytest.raises(KeyError), hydra_app.user_errors("mt.x", ValueError):
        raise KeyError("a bug")
    monkeypatch.setenv("MT_TRACEBACK", "1")
    with pytest.raises(ValueError, match="six"), hydra_app.user_errors("mt.x", ValueError):
        raise ValueError("six")


def test_ctrl_c_before_there_is_something_to_save_is_one_line(
    capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # which start() sets for its whole process
    monkeypatch.setattr(sys, "argv", ["mt.x"])

    def main() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end:
        hydra_app.start("mt.x", main)
    assert end.value.code == 130
    assert capsys.readouterr().err == "mt.x: interrupted\n"


def test_only_empty_folders_below_outputs_go(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    run, own = Path("outputs/a/run"), Path("mine/run")
    full = Path("outputs/b/run")
    for folder in (run, own, full):
        folder.mkdir(parents=True)
    (full / "something").write_text("")
    for folder in (run, own, full):
        hydra_app.remove_empty(folder)
    assert not Path("outputs/a").exists()
    assert not own.exists()
    assert Path("mine").exists()
    assert (full / "something").exists()


def test_a_constructor_refuses_a_value_with_its_own_error() -> None:
    date = {"_target_": "datetime.date", "year": 2017, "month": 6, "day": "${day}"}
    cfg = OmegaConf.create({"day": 12, "date": date})
    assert hydra_app.instantiate(cfg, "date").isoformat() == "2017-06-12"
    cfg.day = 32
    with pytest.raises(ValueError, match="day"):
        hydra_app.instantiate(cfg, "date")
    cfg.date._target_ = "datetime.gone"
    with pytest.raises(ValueError, match=r"datetime\.gone"):
        hydra_app.instantiate(cfg, "date")
    cfg.date = None
    with pytest.raises(ValueError, match="date=None: is a section"):
        hydra_app.instantiate(cfg, "date")


def test_the_configuration_is_found() -> None:
    assert (Path(hydra_app.CONF) / "train.yaml").is_file()


def test_an_error_of_the_system_names_its_file(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    with pytest.raises(SystemExit), hydra_app.user_errors("mt.x", OSError):
        Path("gone").read_text()
    assert capsys.readouterr().err == "mt.x: error: gone: no such file or directory\n"


@pytest.mark.parametrize("name", ["train", "evaluate"])
def test_all_settings_of_a_program_have_names_that_it_knows(name: str) -> None:
    GlobalHydra.instance().clear()
    with initialize_config_dir(hydra_app.CONF, version_base="1.3"):
        for data in ("wmt14", "multi30k", "files", "phrasebook"):
            cfg = compose(name, [f"data={data}"])
            hydra_app.check_names(cfg, name)
    GlobalHydra.instance().clear()
    with open_dict(cfg):
        cfg.data.foo = 1
    with pytest.raises(ValueError, match=r"^data\.foo is no setting; "):
        hydra_app.check_names(cfg, name)
    hydra_app.check_names(cfg, name, data=["foo"])


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--src", "--src: write a setting as src=VALUE; --help lists them"),
        ("--model-path=x", "--model-path=x: write a setting as model_path=x; --help lists them"),
        ("-x", "-x: write a setting as x=VALUE; --help lists them"),
        ("--", "--: write a setting as NAME=VALUE; --help lists them"),
        ("help", "help: write a setting as NAME=VALUE; --help lists them"),
    ],
)
def test_arguments_of_another_kind_are_explained(
    argument: str, message: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    monkeypatch.setattr(sys, "argv", ["mt.evaluate", argument])
    main = hydra.main(version_base="1.2", config_path=hydra_app.CONF, config_name="evaluate")
    with pytest.raises(SystemExit) as end:
        hydra_app.start("mt.evaluate", main(lambda cfg: None))
    assert end.value.code == 2
    assert capsys.readouterr().err == f"mt.evaluate: error: {message}\n"


@pytest.mark.parametrize(
    ("program", "config"), [("mt.train", None), ("mt.evaluate", None), ("prepare_data", "train")]
)
def test_help_has_every_setting_with_its_comment(
    program: str, config: str | None, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    hydra_app.start(program, lambda: pytest.fail("it runs"), config)
    printed = capsys.readouterr().out
    command = "prepare_data.py" if config else f"python -m {program}"
    assert printed.startswith(f"usage: {command} [NAME=VALUE ...]\n")
    assert ("\nTrain a Transformer; with" in printed) is (program == "mt.train")
    assert "\ndata: wmt14 # wmt14, multi30k, files" in printed
    assert "    max_length: 256 # tokens; a longer side" in printed
    sections = re.split(
        r"^(?=data:|model:)", printed.partition("search.beam_size=1:")[2], flags=re.M
    )
    sections[-1] = sections[-1].partition("--cfg")[0]
    names = {name for text in sections for name in hydra_app._full_names(yaml.safe_load(text))}
    known = set(hydra_app._full_names(hydra_app._listed(config or program.removeprefix("mt."))))
    assert known - {"data.reader"} <= names
    assert {"data.train", "data.test", "data.path", "data.parts"} <= names
    assert ("model.N" in names) is (program != "mt.evaluate")


def test_the_version(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["mt.train", "--version"])
    hydra_app.start("mt.train", lambda: pytest.fail("it runs"))
    assert capsys.readouterr().out == f"mt {mt.__version__}\n"


@pytest.mark.parametrize("argument", ["hydra.run.dir=", "hydra.sweep.dir=''", "hydra.run.dir=' '"])
def test_an_empty_name_is_not_the_current_folder(
    argument: str, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # which start() sets for its whole process
    monkeypatch.delenv("MT_TRACEBACK", raising=False)
    monkeypatch.setattr(sys, "argv", ["mt.x", argument])
    called: list[int] = []
    with pytest.raises(SystemExit) as end:
        hydra_app.start("mt.x", lambda: called.append(1))
    assert (end.value.code, called) == (2, [])
    assert capsys.readouterr().err == f"mt.x: error: {argument}: must name a folder\n"


@pytest.mark.parametrize("kind", [ValueError, TypeError, AttributeError])
def test_an_error_of_our_own_code_is_not_taken_for_hydras(kind: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    monkeypatch.setattr(sys, "argv", ["mt.x"])

    def main() -> None:
        raise kind("a bug")

    with pytest.raises(kind, match="a bug"):
        hydra_app.start("mt.x", main)
