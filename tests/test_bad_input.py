"""Wrong settings and wrong data: status 2, one clear line, nothing half-written; and at once."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import MAX_LENGTH, PAIRS, VOCAB_SIZE, Done, write_lines

from mt.model import checkpoint

ROOT = Path(checkpoint.__file__).parents[2]
TRAIN = {
    "data": "files",
    "data.train": "corpus/train",
    "data.validation": "corpus/validation",
    "model": "tiny",
    "tokenizer.vocab_size": str(VOCAB_SIZE),
    "trainer.accelerator": "cpu",
    "trainer.devices": "1",
    "trainer.max_steps": "2",
    "hydra.run.dir": "outputs/run",
}
EVALUATE = {
    "data": "files",
    "data.test": "corpus/test",
    "device": "cpu",
    "hydra.run.dir": "outputs/run",
}
RunModule = Callable[..., Done]


def command(defaults: dict[str, str], *changes: str) -> list[str]:
    names = {change.split("=")[0] for change in changes}
    kept = [f"{name}={value}" for name, value in defaults.items() if name not in names]
    return [*kept, *changes]


def assert_one_line(done: Done, program: str, message: str) -> None:
    assert done.code == 2, done
    assert "Traceback" not in done.out + done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.startswith(f"{program}: error: "), done.err
    assert re.search(message, done.err), done.err


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"  # empty, in the cache
    }


def assert_nothing_new(folder: Path, before: dict[str, bytes], but: str = "^$") -> None:
    """No file that was not there, no run directory, no temporary folder."""
    contents = {name: content for name, content in everything(folder).items() if name in before}
    assert contents == before
    assert [name for name in set(everything(folder)) - set(before) if not re.match(but, name)] == []
    assert not (folder / "outputs" / "run").exists()
    assert_nothing_hidden(folder)


def assert_nothing_hidden(folder: Path) -> None:
    """No half-written file; the cache's locks are empty and stay."""
    assert [path for path in folder.rglob(".*") if path.suffix != ".lock"] == []


# Settings of mt.train

SETTINGS = [
    ("model.N=six", r"N='six': must be a whole number"),
    ("model.N=0", r"N=0: must be a whole number"),
    ("model.h=3", r"h=3: must divide d_model=128"),
    ("model.P_drop=1.5", r"P_drop=1.5: must be"),
    ("model.d_model=7", r"d_model=7: must be even"),
    ("model=huge", r"model=huge: conf/model has no such file; it has base, big, .*tiny$"),
    ("data=wmt15", r"data=wmt15: conf/data has no such file; it has files, multi30k, phrasebook"),
    (
        "experiment=quickstrat",
        r"experiment=quickstrat: .*; it has everyday, multi30k, quickstart, tatoeba",
    ),
    ("data.train=a=b(1)", r"data.train=a=b\(1\): cannot be read: .* stands in quotation marks"),
    ("modle.N=6", r"modle.N is no setting; did you mean model.N\?"),
    ("model.layers=6", r"model.layers is no setting; did you mean model.N\?"),
    ("trainer.max_stepz=1", r"trainer.max_stepz is no setting; did you mean trainer.max_steps\?"),
    ("+trainer.max_stepz=1", r"trainer.max_stepz is no setting; did you mean trainer.max_steps\?"),
    ("model.N", r"model.N: write a setting as NAME=VALUE"),
    ("tokenizer.vocab=1", r"tokenizer.vocab is no setting; did you mean tokenizer.vocab_size\?"),
    ("modle=tiny", r"modle is no setting; did you mean model\?"),
    ("ckpt=lst", r"ckpt=lst: no such file; give one, or last or auto"),
    ("+tokenizer.vocab=1", r"tokenizer.vocab is no setting; did you mean tokenizer.vocab_size\?"),
    ("model.d_model=100000000", r"d_model=100000000: must be a whole number from 1 to"),
    ("model.d_model=1048576", r"GB of memory or more, and this machine has"),
    ("trainer.gradient_clip_val=nan", r"gradient_clip_val=nan: must be null or a number"),
    ("trainer.gradient_clip_val=-1", r"gradient_clip_val=-1: must be null or a number"),
    ("data=[1,2]", r"name a file of that folder of conf/"),
    ("data.tgt=en", r"data.src=en and data.tgt=en: the source is the target"),
    ("data.cache_dir=''", r"data.cache_dir='': must be a path"),
    ("trainer.devices=banana", r"devices"),
    ("trainer.devices=0", r"devices=0"),
    ("trainer.accelerator=banana", r"accelerator='banana'"),
    ("trainer.precision=8", r"precision=8: must be 64, 32, 16, .* bf16 or null"),
    ("trainer.max_steps=many", r"max_steps='many'"),
    ("trainer.max_steps=-5", r"max_steps.*-5"),
    ("trainer.gradient_clip_val=x", r"gradient_clip_val.*x"),
    ("trainer.log_every_n_steps=x", r"log_every_n_steps='x'"),
    ("data=null", r"Config group override must be a string or a list. Got NoneType: name a file"),
    ("model=5", r"Config group override must be a string or a list. Got int: name a file"),
    ("data.clean=null", r"data.clean=None: is a section: set data.clean.NAME=VALUE"),
    ("training=null", r"training=None: is a section"),
    ("seed=x", r"seed='x': must be"),
    ("seed=-1", r"seed=-1: must be"),
    ("seed=null", r"seed=None: must be"),
    ("ckpt=nowhere.ckpt", r"ckpt=nowhere.ckpt: no such file"),
    ("ckpt=last", r"no checkpoint in .*: leave out ckpt=last to begin a run"),
    ("ckpt=corpus", r"ckpt=corpus is a folder: name a file, RUN/checkpoints/NAME.ckpt"),
    ("ckpt=5", r"ckpt=5: no such file"),
    ("init_from=gone", r"init_from: gone: no such model folder"),
    ("init_from=latest", r"init_from=latest: name the folder"),
    ("init_from=corpus", r"corpus: not a model folder"),
    ("training.eps_ls=2", r"eps_ls=2: must be"),
    ("training.eps_ls=x", r"eps_ls='x': must be"),
    ("training.warmup_steps=0", r"warmup_steps=0: must be"),
    ("training.lr_factor=0", r"lr_factor=0: must be a number above 0"),
    ("model.learned_positions=256", r"more than the longest .* data.clean.max_length makes 256"),
    ("model=decoder_only_tiny model.learned_positions=513", r"data.clean.max_length makes 513"),
    ("model.learned_positions=512 tokenizer.bpe_dropout=0.1", r"cannot go with tokenizer.bpe_dr"),
    ("training.beta1=2", r"beta1=2: must be"),
    ("training.eps=-1", r"eps=-1: must be"),
    ("data.tokens_per_step=0", r"tokens_per_step=0: must be"),
    ("data.max_tokens=-5", r"max_tokens=-5: must be"),
    ("data.max_tokens=x", r"max_tokens='x': must be"),
    ("data.noise=2", r"data.noise=2: must be a number from 0 to 1"),
    ("model.learned_positions=512 data.noise=0.1", r"cannot go with data.noise"),
    ("data.workers=-1", r"workers=-1: must be"),
    ("data.limit=0", r"limit=0: must be"),
    ("data.validation_limit=x", r"limit='x': must be"),
    ("data.clean.max_length=0", r"max_length=0: must be"),
    ("data.clean.max_ratio=x", r"max_ratio='x': must be"),
    ("data.clean.empty=maybe", r"empty='maybe': must be"),
    ("data.kind=web", r"data.kind is no setting"),
    ("data.train=null", r"data.train is not set"),
    ("data.validation=null", r"data.validation is not set"),
    ("data.train=[one]", r"data.train=\['one'\]: must name two files"),
    ("data.train=5", r"data.train=5"),
    ("data.train=gone", r"no such file: gone.en or gone.en.gz"),
    ("data.validation=gone", r"no such file: gone.en or gone.en.gz"),
    ("data.train=gone.tsv", r"no such file: gone.tsv"),
    ("tokenizer.vocab_size=100000", r"tokenizer.vocab_size=100000: too large .* at most \d+: set"),
    ("tokenizer.vocab_size=999999999999", r"vocab_size=999999999999: must be a whole number from"),
    ("tokenizer.vocab_size=3", r"vocab_size=3: too small"),
    ("tokenizer.vocab_size=x", r"vocab_size='x': must be"),
    ("tokenizer.path=corpus/train.en", r"corpus/train.en: not a SentencePiece model"),
    ("tokenizer.path=corpus", r"corpus"),
    ("tokenizer.bpe_dropout=1", r"bpe_dropout=1: must be"),
    ("search.beam_size=-1", r"beam_size=-1: must be"),
    ("search.alpha=x", r"alpha='x': must be"),
    ("search.alpha=1e300", r"alpha=1e\+300: must be a number from 0 to 10"),
    ("search.beam_size=10000", r"beam_size=10000: must be a whole number from 1 to 1,000"),
    ("search.batch_size=0", r"batch_size=0: must be"),
    ("validate_every=0", r"validate_every=0: must be"),
    ("checkpoint_every=x", r"checkpoint_every='x': must be"),
    ("average=0", r"average=0: must be"),
    ("trainer.devices=0", r"trainer.devices=0: must be at least 1, or -1 for all"),
    ("hydra.run.dir=corpus/train.en/run", r"corpus/train.en"),
    ("hydra.run.dir=", r"hydra.run.dir=: must name a folder"),
    ("hydra.run.dir=corpus/train.en", r"hydra.run.dir=corpus/train.en: is a file: name a folder"),
    ("hydra.run.dir=''", r"hydra.run.dir='': must name a folder"),
]


@pytest.mark.parametrize(("setting", "message"), SETTINGS)
def test_a_wrong_setting_of_training(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path, setting: str, message: str
) -> None:
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, *setting.split()))
    assert_one_line(done, "mt.train", message)
    assert_nothing_new(tmp_path, before)


def test_the_vocabulary_that_is_named_as_the_largest_works(
    run_module: RunModule, corpus_folder: Path
) -> None:
    done = run_module("mt.train", *command(TRAIN, "tokenizer.vocab_size=100000"))
    match = re.search(r"at most (\d+)", done.err)
    assert match
    largest = int(match[1])
    done = run_module("mt.train", *command(TRAIN, f"tokenizer.vocab_size={largest + 1}"))
    assert match[0] in done.err
    done = run_module("mt.train", *command(TRAIN, f"tokenizer.vocab_size={largest}", "model.N=1"))
    assert done.code == 0, done


def test_the_command_line_that_the_others_change_is_right(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    done = run_module("mt.train", *command(TRAIN, "model.N=1", "search.beam_size=1"))
    assert done.code == 0, done
    assert "Traceback" not in done.err
    model = tmp_path / "outputs" / "run" / "model"
    assert checkpoint.load(model).tokenizer.vocab_size == VOCAB_SIZE
    assert_nothing_hidden(tmp_path)
    # what is left to do after the last step
    resume = command(TRAIN, "model.N=1", "search.beam_size=1", "ckpt=last")
    del resume[[name.split("=")[0] for name in resume].index("hydra.run.dir")]
    before = everything(tmp_path)
    done = run_module("mt.train", *resume)
    assert_one_line(done, "mt.train", r"nothing left to train: .* is a total")
    assert everything(tmp_path) == before
    done = run_module("mt.train", *resume, "model.d_ff=64", "trainer.max_steps=9")
    assert_one_line(done, "mt.train", r"is of another model \(d_ff: \d+ → 64\): give the settings")
    assert everything(tmp_path) == before


# Data


def misaligned(folder: Path) -> str:
    write_lines(folder / "bad.en", [en for en, _ in PAIRS])
    write_lines(folder / "bad.de", [de for _, de in PAIRS[:-1]])
    return r"not aligned: .*bad.en has 36 lines, .*bad.de has 35;"


def latin1(folder: Path) -> str:
    misaligned(folder)
    (folder / "bad.de").write_bytes("".join(f"{de}\n" for _, de in PAIRS).encode("latin-1"))
    return r"bad.de, line 1: not UTF-8"


def empty(folder: Path) -> str:
    write_lines(folder / "bad.en", [])
    write_lines(folder / "bad.de", [])
    return "the corpus is empty: (it|data.train|data.validation) holds no sentence pairs"


def blank(folder: Path) -> str:
    write_lines(folder / "bad.en", ["", " ", "\t"])
    write_lines(folder / "bad.de", ["", "", ""])
    return "no text to train a tokenizer on|no pair of train is left|nothing"


def half_there(folder: Path) -> str:
    write_lines(folder / "bad.en", ["a"])
    return r"no such file: .*bad.de or .*bad.de.gz"


def damaged(folder: Path) -> str:
    for side, suffix in enumerate(("en", "de")):
        text = "".join(f"{number} {pair[side]}\n" for number in range(500) for pair in PAIRS)
        content = gzip.compress(text.encode())
        middle = len(content) // 2
        content = content[:middle] + b"\xff" * 200 + content[middle + 200 :]
        (folder / f"bad.{suffix}.gz").write_bytes(content)
    return r"bad.(en|de).gz, (after )?line \d+: (damaged gzip|not UTF-8)"


DATA = [misaligned, latin1, empty, blank, half_there, damaged]


@pytest.mark.parametrize("make", DATA)
def test_wrong_training_data(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    message = make(corpus_folder)
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, "data.train=corpus/bad"))
    assert_one_line(done, "mt.train", message)
    assert_nothing_new(tmp_path, before)


def test_splits_of_different_forms(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    """A training file without a header beside validation files that their suffixes name."""
    write_lines(corpus_folder / "train.tsv", ["\t".join(pair) for pair in PAIRS])
    message = "data.validation=corpus/validation: not a .tsv or .jsonl file, so data.src=0 and"
    before = everything(tmp_path)
    columns = ["data.train=corpus/train.tsv", "data.src=0", "data.tgt=1"]
    done = run_module("mt.train", *command(TRAIN, *columns))
    assert_one_line(done, "mt.train", message)
    assert_nothing_new(tmp_path, before)


@pytest.mark.parametrize("make", [misaligned, latin1, empty, half_there, damaged])
def test_wrong_validation_data(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path, make: Callable[[Path], str]
) -> None:
    """It shows before the training text is read, which may take hours."""
    message = make(corpus_folder)
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, "data.validation=corpus/bad"))
    assert_one_line(done, "mt.train", message)
    assert_nothing_new(tmp_path, before)


def test_a_corpus_of_which_nothing_is_left(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, "data.clean.max_length=1"))
    assert done.code == 2
    first, *table = done.err.splitlines()
    assert first.startswith("mt.train: error: no pair of train is left after cleaning")
    assert re.search(r"dropped: max_length +36\n.*kept +0$", "\n".join(table), re.DOTALL)
    assert_nothing_new(tmp_path, before, but=r"tokenizer/")


def test_a_cache_that_cannot_be_written(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, "data.cache_dir=corpus/train.en/cache"))
    assert_one_line(done, "mt.train", "corpus/train.en/cache")
    assert_nothing_new(tmp_path, before, but=r"tokenizer/")


def test_a_tokenizer_that_cannot_be_written(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    done = run_module("mt.train", *command(TRAIN, "tokenizer.path=corpus/train.en/x.model"))
    assert_one_line(done, "mt.train", "corpus/train.en")
    assert_nothing_new(tmp_path, before)


# Model folders, for everybody who reads them


def truncated(folder: Path) -> str:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    return r"model.safetensors: damaged or truncated"


def incomplete(folder: Path) -> str:
    (folder / "tokenizer.model").unlink()
    return r"tokenizer.model is missing"


def of_another_format(folder: Path) -> str:
    (folder / "config.json").write_text('{"format": "mt-model-9"}')
    return r"config.json: format is 'mt-model-9', must be"


def mistyped(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text())
    config["model"]["N"] = "one"
    (folder / "config.json").write_text(json.dumps(config))
    return r"N='one': must be a whole number"


def with_another_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.model").write_bytes(b"\x00" * 100)
    return r"tokenizer.model: not a SentencePiece model"


def a_file(folder: Path) -> str:
    shutil.rmtree(folder)
    folder.write_text("a letter, not a model\n")
    return r"broken: not a readable checkpoint"


def gone(folder: Path) -> str:
    shutil.rmtree(folder)
    return r"broken: no such model folder or checkpoint"


BROKEN = [truncated, incomplete, of_another_format, mistyped, with_another_tokenizer, a_file, gone]


@pytest.fixture
def broken(tmp_path: Path, model_folder: Path) -> Path:
    shutil.copytree(model_folder, tmp_path / "broken")
    return tmp_path / "broken"


@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_model(
    run_module: RunModule,
    corpus_folder: Path,
    broken: Path,
    tmp_path: Path,
    damage: Callable[[Path], str],
) -> None:
    message = damage(broken)
    before = everything(tmp_path)
    done = run_module("mt.evaluate", *command(EVALUATE, "model_path=broken"))
    assert_one_line(done, "mt.evaluate", message)
    assert_nothing_new(tmp_path, before)
    done = run_module("mt.translate", "--model", "broken", "--output", "out", "A bear.")
    assert_one_line(done, "mt.translate", message)
    assert_nothing_new(tmp_path, before)


# Settings and data of mt.evaluate


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("search.beam_size=-1", r"beam_size=-1: must be"),
        ("search.beam_size=[1,x]", r"beam_size='x': must be"),
        ("search.beam_size=[]", r"beam_size=\[\]"),
        ("search.beam_size=null", r"beam_size=None: must be"),
        ("search.alpha=-1", r"alpha=-1: must be"),
        ("search.alpha=1e300", r"alpha=1e\+300: must be a number from 0 to 10"),
        ("search.beam_size=[1,10000]", r"beam_size=10000: must be a whole number from 1 to 1,000"),
        ("workers=1000000000", r"workers=1000000000: must be a whole number from 1 to 1,024"),
        ("search.batch_size=0", r"batch_size=0: must be"),
        ("limit=0", r"limit=0: must be"),
        ("limit=x", r"limit='x': must be"),
        ("split=dev", r"split=dev: must be one of train, validation, test"),
        ("split=train", r"data.train is not set"),
        ("src=corpus/test.en", r"src and ref go together"),
        ("ref=corpus/test.de", r"src and ref go together"),
        ("tokenized=perhaps", r"tokenized='perhaps': must be true or false"),
        ("compare=[corpus,gone]", r"corpus: no report there"),
        ("device=banana", r"device 'banana' cannot be used"),
        ("device=null", r"device 'None' cannot be used"),
        ("device=gpu", r"device 'gpu' cannot be used here: give cpu, cuda, cuda:1 or auto"),
        ("model_path=5", r"5: no such model"),
        ("data=wmt15", r"data=wmt15: conf/data has no such file"),
        ("banana=1", r"banana is no setting"),
        ("model=latest", r"model is no setting; did you mean model_path\?"),
        ("hydra.run.dir=", r"hydra.run.dir=: must name a folder"),
        ("data.test=gone", r"no such file: gone.en or gone.en.gz"),
        ("hydra.run.dir=corpus/test.en/run", r"corpus/test.en"),
        *((f"{name}=''", rf"{name} is empty: name a file or a folder, or leave it out")
          for name in ("model_path", "hyp", "comet")),
        ("model_path=['']", r"model_path is empty"),
        ("comet=0", r"comet=0: COMET is not installed"),
        ("data.limit=2", r"data.limit is for training, mt.evaluate does not use it: set limit"),
        ("data.clean.max_length=9", r"data.clean.max_length is for training"),
        ("data.cache_dir=''", r"data.cache_dir is for training"),
        ("data.reader._target_=x", r"Error locating target 'x'"),
        ("srx=test.en", r"srx is no setting; did you mean src\?"),
        ("search.beam_size=[1,4", r"beam_size=\[1,4: cannot be read: a list ends in \]"),
        ("+limits=2", r"limits is no setting; did you mean limit"),
        ("search.beam_size=999999999999", r"beam_size=999999999999: must be"),
        ("search.alpha=1e300", r"alpha=1e\+300: must be"),
        ("search.alpha=nan", r"alpha=nan: must be"),
        ("data.tgt=en", r"the source is the target"),
    ],
)  # fmt: skip
def test_a_wrong_setting_of_evaluation(
    run_module: RunModule,
    corpus_folder: Path,
    model_folder: Path,
    tmp_path: Path,
    setting: str,
    message: str,
) -> None:
    before = everything(tmp_path)
    defaults = {**EVALUATE, "model_path": str(model_folder)}
    done = run_module("mt.evaluate", *command(defaults, setting))
    assert_one_line(done, "mt.evaluate", message)
    assert_nothing_new(tmp_path, before)


def test_one_language_for_both_files(run_module: RunModule, corpus_folder: Path) -> None:
    files = ["src=corpus/test.en", "ref=corpus/test.de", "data.src=de"]
    done = run_module("mt.evaluate", *command(EVALUATE, *files))
    message = "data.src=de and data.tgt=de: the source is the target"
    assert_one_line(done, "mt.evaluate", message)


def test_a_wrong_seed_of_the_intervals_shows_before_the_work(
    run_module: RunModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "0")
    before = everything(tmp_path)
    done = run_module("mt.evaluate", *command(EVALUATE))
    assert_one_line(done, "mt.evaluate", r"SACREBLEU_SEED=0: must be a whole number above 0")
    assert_nothing_new(tmp_path, before)


@pytest.mark.parametrize("make", [misaligned, latin1, empty, half_there, damaged])
@pytest.mark.parametrize("named_by", ["data", "src and ref"])
def test_wrong_test_data(
    run_module: RunModule,
    corpus_folder: Path,
    model_folder: Path,
    tmp_path: Path,
    make: Callable[[Path], str],
    named_by: str,
) -> None:
    message = make(corpus_folder)
    before = everything(tmp_path)
    defaults: dict[str, Any] = {**EVALUATE, "model_path": str(model_folder)}
    if named_by == "data":
        changes = ["data.test=corpus/bad"]
    else:
        end = ".gz" if make is damaged else ""
        changes = [f"src=corpus/bad.en{end}", f"ref=corpus/bad.de{end}"]
        message = message.replace(" or .*bad.de.gz", "")
    done = run_module("mt.evaluate", *command(defaults, *changes))
    assert_one_line(done, "mt.evaluate", message)
    assert_nothing_new(tmp_path, before)


def test_evaluation_without_a_model_says_how_to_get_one(
    run_module: RunModule, corpus_folder: Path, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    done = run_module("mt.evaluate", *command(EVALUATE, "model_path=latest"))
    assert_one_line(done, "mt.evaluate", "experiment=quickstart")
    assert_nothing_new(tmp_path, before)


def test_nothing_here_is_longer_than_the_model_allows(model_folder: Path) -> None:
    """Else a warning would stand beside the errors above."""
    tokenizer = checkpoint.load(model_folder).tokenizer
    assert max(map(len, tokenizer.encode([en for en, _ in PAIRS]))) < MAX_LENGTH


# As real processes: the same status and messages


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        pytest.param(
            "mt.train", command(TRAIN, "model.N=six"), "N='six'", marks=pytest.mark.slow
        ),
        pytest.param(
            "mt.train", command(TRAIN, "data.train=gone"), "no such file: gone.en",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "mt.train", command(TRAIN, "banana=1"), "banana is no setting",
            marks=pytest.mark.slow,
        ),
        ("mt.evaluate", command(EVALUATE, "model_path=gone"), "gone: no such model folder"),
        pytest.param(
            "mt.evaluate", command(EVALUATE, "banana=1"), "banana is no setting",
            marks=pytest.mark.slow,
        ),
        ("mt.translate", ["--model", "gone", "A bear."], "gone: no such model folder"),
    ],
)  # fmt: skip
def test_a_process_ends_with_status_2(
    corpus_folder: Path, tmp_path: Path, module: str, arguments: list[str], message: str
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MT_CACHE": str(tmp_path / "cache")}
    before = everything(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert_one_line(Done(done.returncode, done.stdout, done.stderr), module, re.escape(message))
    assert_nothing_new(tmp_path, before)
