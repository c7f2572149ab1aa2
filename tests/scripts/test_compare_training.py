"""The comparison with a peer's training: same pieces, same tokens, right sums. No peer needed."""

import importlib
import itertools
import json
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
import torch

from mt.data.preprocessing import texts
from mt.data.readers import FileReader
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.transformer import Transformer

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return importlib.import_module("compare_training_setup")


@pytest.fixture
def comparison(setup: ModuleType) -> ModuleType:
    return importlib.import_module("compare_training")


@pytest.fixture
def reports(setup: ModuleType) -> ModuleType:
    return importlib.import_module("compare_training_report")


@pytest.fixture
def plan(setup: ModuleType, tmp_path: Path) -> Any:
    for split in ("train", "validation", "test"):
        for side, word in (("en", "dog"), ("de", "hund")):
            count = 40 if split == "train" else 3
            lines = [f"a {word} . {i * i} {word}s\n" for i in range(count)]
            # The last training pair came before: mt.train drops it.
            (tmp_path / f"{split}.{side}").write_text("".join(lines + lines[:1]))
    source = FileReader(*(str(tmp_path / split) for split in ("train", "validation", "test")))
    work = tmp_path / "work"
    work.mkdir()
    return setup.Plan(work, source, 50, 64, 20, 10, 5, 10, (1, 2), 1, 1)


def test_the_peer_reads_the_pieces_of_the_pairs_that_we_keep(setup: ModuleType, plan: Any) -> None:
    kept = setup.prepare_both(plan)
    tokenizer = Tokenizer.load(plan.work / "tokenizer.model")
    words = setup.read_lines(plan.work / "pieces" / "vocabulary.txt")
    assert len(words) == len(set(words)) == 50 - 4
    for split, count in (("train", 40), ("dev", 4), ("test", 4)):
        for side, name in enumerate(("en", "de")):
            lines = setup.read_lines(plan.work / "pieces" / f"{split}.{name}")
            assert len(lines) == count
            assert all(set(line.split(" ")) <= set(words) for line in lines)
            # Joey NMT's ids are ours: its four special ones, then the list.
            ids = [[words.index(piece) + 4 for piece in line.split(" ")] for line in lines]
            if split == "train":
                ours = kept.fetch(list(range(count)))[side]
                assert ids == [row.tolist() for row in ours]
            assert [setup.join(line) for line in lines] == tokenizer.decode(ids)
    assert setup.join("▁a ▁man ▁in ▁t own ▁.") == "a man in town ."
    assert setup.join("<unk>") == ""


def test_both_are_told_the_same_settings(setup: ModuleType, plan: Any) -> None:
    from hydra import compose, initialize_config_dir

    from mt.utils import hydra_app

    with initialize_config_dir(hydra_app.CONF, version_base="1.3"):
        cfg = compose("train", [a for a in setup.our_command(plan) if not a.startswith("hydra.")])
    theirs = setup.peer_config(plan, 100)
    side, training = theirs["model"]["encoder"], theirs["training"]
    assert side["num_layers"] == cfg.model.N
    assert theirs["model"]["embed_initializer"] == "normal"
    assert theirs["model"]["embed_init_weight"] == cfg.model.d_model**-0.5  # as reset_parameters
    assert cfg.model.h == side["num_heads"]
    assert cfg.model.d_model == side["hidden_size"] == side["embeddings"]["embedding_dim"]
    assert cfg.model.d_ff == side["ff_size"]
    assert cfg.model.P_drop == side["dropout"] == side["embeddings"]["dropout"]
    assert cfg.training.eps_ls == training["label_smoothing"]
    assert [cfg.training.beta1, cfg.training.beta2] == training["adam_betas"]
    assert cfg.training.eps == theirs["comparison"]["eps"]
    assert cfg.training.warmup_steps == training["learning_rate_warmup"] == 10
    assert cfg.trainer.max_steps == training["updates"] == 20
    assert cfg.checkpoint_every == training["validation_freq"] == 5
    assert cfg.validate_every == theirs["comparison"]["validate_every"] == 10
    assert cfg.average == 2  # the most that is tried
    assert cfg.seed == theirs["random_seed"] == 1
    json.dumps(theirs)


def test_the_peers_batches_by_hand(setup: ModuleType) -> None:
    assert setup.peer_batches([3, 4, 5, 2], 8) == 2  # 3 4 | 5 2
    assert setup.peer_batches([3, 4, 5, 2], 9) == 2  # 3 4 5 | 2
    assert setup.peer_batches([3, 4, 5, 2], 3) == 4  # 3 | 4 | 5, and 2 is left
    assert setup.peer_batches([3, 4, 5, 2], 1000) == 1


def test_the_batch_size_gives_as_many_batches(setup: ModuleType) -> None:
    longest = np.random.default_rng(7).integers(3, 40, size=2000)
    size = setup.fitting_batch_size(longest, 25)
    found = [
        setup.peer_batches(np.random.default_rng(50 + i).permutation(longest).tolist(), size)
        for i in range(10)
    ]
    assert np.mean(found) == pytest.approx(25, abs=1)
    assert size > longest.sum() / 25  # it pays for padding


def test_tokens_are_scored_as_they_are(reports: ModuleType) -> None:
    references = ["ein mann ( links ) geht .", "zwei frauen sitzen im park ."]
    found = reports.BLEU.score(references, references)
    assert found.value == pytest.approx(100)
    assert "tok:none" in found.signature
    joined = ["ein mann (links) geht.", "zwei frauen sitzen im park ."]
    assert reports.BLEU.score(joined, references).value < 60
    assert sacrebleu.corpus_bleu(joined, [references], force=True).score == pytest.approx(100)


def played(reports: ModuleType, name: str, seconds: float, tgt: int, bleu: float) -> dict[str, Any]:
    """A program's results of four updates."""
    found = reports.training(
        [
            {"step": i, "seconds": seconds * i, "cpu_seconds": i, "src": 50, "tgt": tgt + i}
            for i in (1, 2, 3, 4)
        ]
    )
    points = [
        {"step": i, "seconds": 1.0, "perplexity": p, "bleu": 1.0} for i, p in ((2, 9), (4, 8))
    ]
    if name == "mt":
        points[1] = {**points[1], "perplexity": 7.25}
    scores = {"validation BLEU": bleu + 1, "test BLEU": bleu, "averaged": 2}
    return {**found, **scores, "validations": points}


def both(reports: ModuleType, ours: float, theirs: float) -> dict[str, Any]:
    """A seed, by its test BLEU."""
    found = {
        "mt": played(reports, "mt", 2.0, 100, ours),
        "joeynmt": played(reports, "joeynmt", 5.0, 101, theirs),
    }
    return {"conclusions": reports.conclusions(found), "results": found}


def test_sums_table_and_conclusions_by_hand(reports: ModuleType) -> None:
    found = both(reports, 41.5, 40.0)
    ours = found["results"]["mt"]
    assert ours["updates"] == 4
    assert ours["target tokens an update"] == 102.5
    assert ours["seconds"] == 8.0
    assert ours["CPU seconds"] == 4
    assert ours["tokens a second"] == round((4 * 150 + 10) / 8)
    assert found["conclusions"] == {
        "test BLEU, mt - peer": 1.5,
        "validation BLEU, mt - peer": 1.5,
        "wall time, peer / mt": 2.5,
        "CPU time, peer / mt": 1.0,
        "target tokens an update, peer / mt": pytest.approx(1.0098),
    }
    rows = reports.report({"3": found, "5": both(reports, 40.0, 41.0)}).splitlines()
    assert rows[2] == "| mt | 3 | 4 | 102 | 0.1 | 0.1 | 76 | 7.25 | 2 | 42.50 | 41.50 |"
    assert [row.split(" | ")[1] for row in rows[2:]] == ["3", "3", "5", "5"]


def test_means_over_seeds_by_hand(reports: ModuleType) -> None:
    pairs = {"1": (41.0, 40.0), "2": (42.0, 43.0), "3": (43.0, 40.0)}
    found = reports.over_seeds({seed: both(reports, *pair) for seed, pair in pairs.items()})
    assert found["seeds"] == 3
    assert found["test BLEU"] == {
        "mt": 42.0,
        "joeynmt": 41.0,
        "mt - peer": 1.0,
        "deviation": {"mt": 1.0, "joeynmt": 1.73},
        "standard error of mt - peer": 1.15,  # sqrt((1 + 3) / 3)
    }
    assert found["validation BLEU"]["mt"] == 43.0
    assert found["validations where mt has the lower perplexity"] == "3 of 6"
    alone = reports.over_seeds({"1": both(reports, 41.0, 40.0)})
    assert alone["test BLEU"] == {"mt": 41.0, "joeynmt": 40.0, "mt - peer": 1.0}


def test_what_both_have_left_is_read_and_drawn(
    setup: ModuleType,
    reports: ModuleType,
    plan: Any,
    small_tokenizer: Tokenizer,
    tmp_path: Path,
) -> None:
    leave(setup, plan, small_tokenizer)
    found = reports.results(plan, {"mt": 2, "joeynmt": 1})
    assert found["mt"]["test BLEU"] == 100.0 > found["joeynmt"]["test BLEU"]
    model = checkpoint.load(plan.work / "mt" / "model").model
    assert found["mt"]["parameters"] == sum(w.numel() for w in model.parameters())
    assert [found[name]["averaged"] for name in setup.NAMES] == [2, 1]
    by_count = found["mt"]["validation BLEU by the mean of so many checkpoints"]
    assert 0 < by_count["1"] < by_count["2"] == found["mt"]["validation BLEU"] == 100.0
    assert [reports.best_average(plan, name) for name in setup.NAMES] == [2, 1]  # equal: the fewer
    point = {"step": 20, "seconds": 60.0, "perplexity": 12.5}
    assert found["mt"]["validations"] == [{**point, "bleu": 50.0}]
    assert found["joeynmt"]["validations"] == [{**point, "bleu": pytest.approx(100)}]
    bootstrap = found["test BLEU, paired bootstrap"]
    assert "bs:1000" in bootstrap["signature"]
    assert bootstrap["95%, half"]["mt"] == 0.0 < bootstrap["95%, half"]["joeynmt"]
    assert bootstrap["p"] < 0.05
    pytest.importorskip("matplotlib")
    reports.draw({"1": {"results": found}, "2": {"results": found}}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def leave(setup: ModuleType, plan: Any, tokenizer: Tokenizer) -> None:
    """What two trainings leave: ours translates perfectly, the peer does not."""
    model = Transformer(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1)
    checkpoint.save(plan.work / "mt" / "model", model, tokenizer, 9, ["en", "de"], {})
    references = texts(plan.source, "validation")[1]
    pieces = ["▁" + line.replace(" ", " ▁") for line in references]
    validations = {"mt": {"bleu": 50.0}, "joeynmt": {"pieces": pieces}}
    (plan.work / "joeynmt").mkdir()
    theirs = {"parameters": 7, "checkpoints": [10, 20], "versions": {}}
    (plan.work / "joeynmt" / "about.json").write_text(json.dumps(theirs))
    for name, validation in validations.items():
        folder = plan.work / name
        update = {"step": 20, "seconds": 60.0, "cpu_seconds": 50.0, "src": 5, "tgt": 6}
        setup.write_lines(folder / "clock.jsonl", [json.dumps(update)])
        line = json.dumps({"step": 20, "perplexity": 12.5, **validation})
        setup.write_lines(folder / "validations.jsonl", [line])
        other = [line.replace("hund", "katze") for line in references]
        other[0] = references[0]
        for split, count in itertools.product(("validation", "test"), (1, 2)):
            hypotheses = references if (name, count) == ("mt", 2) else other
            setup.write_lines(setup.hypotheses(plan, name, split, count), hypotheses)


def test_the_test_set_is_translated_by_what_is_best_on_the_validation_set(
    comparison: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(comparison, "translate", lambda plan, *what: done.append(what[:3]))
    monkeypatch.setattr(comparison, "best_average", lambda plan, name: {"mt": 1}.get(name, 2))
    assert comparison.translate_both(plan, "python") == {"mt": 1, "joeynmt": 2}
    assert done == [
        *(("mt", "validation", 1), ("mt", "validation", 2), ("mt", "test", 1)),
        *(("joeynmt", "validation", 1), ("joeynmt", "validation", 2), ("joeynmt", "test", 2)),
    ]


def test_ours_translates_by_the_mean_of_its_last_checkpoints(
    comparison: ModuleType, setup: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, averaged = plan.work / "mt" / "checkpoints", []
    folder.mkdir(parents=True)
    for step in (10, 15, 20):
        (folder / f"step-{step:08}.ckpt").touch()
    (folder / "last.ckpt").touch()

    def average(arguments: list[str]) -> int:
        averaged.append([Path(each).name for each in arguments])
        return 0

    class Played:
        @classmethod
        def load(cls, path: Path, device: str) -> "Played":
            return cls()

        def translate(self, sources: list[str], **search: Any) -> list[Any]:
            assert search == {"beam_size": 5, "alpha": 1.0}
            return [SimpleNamespace(text="ein hund") for _ in sources]

    monkeypatch.setattr(comparison.average_checkpoints, "main", average)
    monkeypatch.setattr(comparison, "Translator", Played)
    comparison.translate(plan, "mt", "test", 2, "python")
    assert averaged == [["step-00000015.ckpt", "step-00000020.ckpt", "--output", "mean-2"]]
    assert setup.read_lines(plan.work / "mt.2.test") == ["ein hund"] * 4
    comparison.translate(plan, "mt", "test", 2, "python")
    assert len(averaged) == 1  # what is there is not done again
    with pytest.raises(FileNotFoundError, match="4 checkpoints are not there"):
        comparison.translate(plan, "mt", "test", 4, "python")


def test_every_seed_has_its_own_folder_and_place(
    comparison: ModuleType,
    reports: ModuleType,
    plan: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    output, plans = tmp_path / "new" / "o.json", []

    def compare(plan: Any, python: str) -> dict[str, Any]:
        if plan.seed == 9:
            raise OSError("it did not train to its end")
        plans.append(plan)
        return both(reports, 40.0 + plan.seed, 41.0)

    def seeds() -> list[str]:
        return list(json.loads(output.read_text())["seeds"])

    monkeypatch.setattr(comparison, "compare", compare)
    places = [f"--{split}={tmp_path / split}" for split in ("train", "validation", "test")]
    common = [*places, f"--work={tmp_path / 'w'}", f"--output={output}"]
    common += ["--python", f"joeynmt={sys.executable}"]
    assert comparison.main([*common, "--seed", "2", "7"]) == 0
    assert [(plan.seed, plan.work.name) for plan in plans] == [(2, "seed-2"), (7, "seed-7")]
    assert seeds() == ["2", "7"]
    assert json.loads(output.read_text())["over seeds"]["test BLEU"]["mt - peer"] == 3.5
    assert "| joeynmt | 7 |" in capsys.readouterr().out
    assert comparison.main([*common, "--seed", "7", "9"]) == 2
    assert seeds() == ["7"]  # what was done before is there
    plans.clear()
    assert comparison.main([*common, "--seed", "3", "7", "--updates", "1270"]) == 2
    assert "seed-7 holds another comparison" in capsys.readouterr().err
    assert not plans  # it shows before seed 3 is trained


@pytest.mark.parametrize(("wrong", "says"), [("0", "at least 1"), ("2", "names one twice")])
def test_seeds_that_make_no_sense(
    comparison: ModuleType, wrong: str, says: str, capsys: Any
) -> None:
    common = ["--train=a", "--validation=b", "--test=c", "--python=joeynmt=x", "--output=o.json"]
    with pytest.raises(SystemExit):
        comparison.main([*common, "--seed", "2", wrong])
    assert says in capsys.readouterr().err


def test_a_folder_holds_one_comparison(comparison: ModuleType, plan: Any) -> None:
    comparison.remember(plan)
    comparison.remember(plan)
    with pytest.raises(ValueError, match="another comparison"):
        comparison.remember(plan._replace(updates=21))
    comparison.remember(plan._replace(average=(2,)))  # as many were kept
    with pytest.raises(ValueError, match="another comparison"):
        comparison.remember(plan._replace(average=(1, 2, 3)))


def test_what_was_interrupted_is_not_trained(comparison: ModuleType, plan: Any) -> None:
    folder = plan.work / "mt" / "model"
    folder.mkdir(parents=True)
    for steps, done in ((19, False), (20, True)):
        about = {"training": {"steps": steps, "validation sacreBLEU": 1.0}}
        (folder / "config.json").write_text(json.dumps(about))
        assert comparison.is_trained(plan, "mt") == done
    assert not comparison.is_trained(plan, "joeynmt")


def test_wrong_input_is_one_line(
    comparison: ModuleType, plan: Any, tmp_path: Path, capsys: Any
) -> None:
    places = [f"--{split}={tmp_path / split}" for split in ("train", "validation", "test")]
    common = [*places, "--work", str(tmp_path / "w"), "--output", str(tmp_path / "o.json")]
    assert comparison.main([*common, "--python", "joeynmt=/no/python"]) == 2
    assert capsys.readouterr().err.endswith("joeynmt=/no/python: no such interpreter\n")
    wrong = ["--python", f"joeynmt={sys.executable}", f"--test={tmp_path / 'gone'}"]
    assert comparison.main([*common, *wrong]) == 2
    error = capsys.readouterr().err
    assert "gone.en" in error
    assert "Traceback" not in error
    with pytest.raises(SystemExit):
        comparison.main([*common, "--python", "joeynmt=x", "--updates", "21"])
    assert "multiples" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        comparison.main([*common, "--python", "joeynmt=x", "--average", "1", "21"])
    assert "not so many checkpoints" in capsys.readouterr().err


def test_our_clock_leaves_validation_out(reports: ModuleType, tmp_path: Path) -> None:
    clock = importlib.import_module("compare_training_mt").Clock()
    trainer = SimpleNamespace(
        estimated_stepping_batches=9,
        global_step=0,
        is_global_zero=False,
        world_size=1,
        sanity_checking=False,
        logger=SimpleNamespace(save_dir=str(tmp_path)),
        state=SimpleNamespace(fn="fit"),
        callback_metrics={"val_loss": 3.0, "val_ppl": 12.5, "val_bleu": 7.0},
    )
    batch = SimpleNamespace(src=SimpleNamespace(tokens=7), tgt=SimpleNamespace(tokens=9))
    clock.on_train_start(trainer, torch.nn.Linear(1, 1))
    for step in (1, 2):
        trainer.global_step = step
        clock.on_train_batch_end(trainer, None, None, batch, 0)
        if step == 1:
            time.sleep(0.2)
            clock.on_validation_end(trainer, None)
    updates = reports.read_records(tmp_path / "clock.jsonl")
    assert [(each["step"], each["src"], each["tgt"]) for each in updates] == [(1, 7, 9), (2, 7, 9)]
    assert updates[-1]["seconds"] < 0.19
    (validation,) = reports.read_records(tmp_path / "validations.jsonl")
    assert validation == {"step": 1, "perplexity": 12.5, "bleu": 7.0}
