"""The comparison with Joey NMT's training: same pieces, same tokens, right sums.

The tests do not need Joey NMT.
"""

import itertools
import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sacrebleu
from script_helpers import load_script, table_rows

from mt.data.preprocessing import texts
from mt.data.readers import FileReader
from mt.data.tokenizer import Tokenizer
from mt.model import checkpoint
from mt.model.transformer import Transformer


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "compare_training")


@pytest.fixture
def setup(comparison: ModuleType) -> ModuleType:
    return comparison.setup


@pytest.fixture
def reports(comparison: ModuleType) -> ModuleType:
    return comparison.reports


@pytest.fixture
def plan(setup: ModuleType, tmp_path: Path) -> Any:
    for split in ("train", "validation", "test"):
        for side, word in (("en", "dog"), ("de", "hund")):
            count = 40 if split == "train" else 3
            lines = [f"a {word} . {i * i} {word}s\n" for i in range(count)]
            # The last pair is a duplicate of the first: mt.train drops it.
            (tmp_path / f"{split}.{side}").write_text("".join(lines + lines[:1]))
    source = FileReader(*(str(tmp_path / split) for split in ("train", "validation", "test")))
    work = tmp_path / "work"
    work.mkdir()
    return setup.Plan(work, source, 50, 64, 20, 10, 5, 10, (1, 2), 1, 1)


def test_joeynmt_reads_the_pieces_of_the_pairs_that_mt_keeps(setup: ModuleType, plan: Any) -> None:
    kept = setup.prepare_both(plan)
    tokenizer = Tokenizer.load(plan.work / "tokenizer.model")
    words = setup.read_lines(plan.work / "pieces" / "vocabulary.txt")
    assert len(words) == len(set(words)) == 50 - 4
    for split, count in (("train", 40), ("dev", 4), ("test", 4)):
        for side, name in enumerate(("en", "de")):
            lines = setup.read_lines(plan.work / "pieces" / f"{split}.{name}")
            assert len(lines) == count
            assert all(set(line.split(" ")) <= set(words) for line in lines)
            # Joey NMT's ids are those of mt: four special ids, then the list.
            ids = [[words.index(piece) + 4 for piece in line.split(" ")] for line in lines]
            if split == "train":
                assert ids == [row.tolist() for row in kept.fetch(list(range(count)))[side]]
            assert [setup.join(line) for line in lines] == tokenizer.decode(ids)
    assert setup.join("▁a ▁man ▁in ▁t own ▁.") == "a man in town ."
    assert setup.join("<unk>") == ""


def test_both_toolkits_get_the_same_settings(setup: ModuleType, plan: Any) -> None:
    from hydra import compose, initialize_config_dir

    from mt.utils import hydra_app

    with initialize_config_dir(hydra_app.CONF, version_base="1.3"):
        cfg = compose("train", [a for a in setup.mt_arguments(plan) if not a.startswith("hydra.")])
    joeynmt = setup.joeynmt_config(plan, 100)
    side, training = joeynmt["model"]["encoder"], joeynmt["training"]
    assert side["num_layers"] == cfg.model.N
    assert joeynmt["model"]["embed_initializer"] == "normal"
    assert joeynmt["model"]["embed_init_weight"] == cfg.model.d_model**-0.5  # as reset_parameters
    assert cfg.model.h == side["num_heads"]
    assert cfg.model.d_model == side["hidden_size"] == side["embeddings"]["embedding_dim"]
    assert cfg.model.d_ff == side["ff_size"]
    assert cfg.model.P_drop == side["dropout"] == side["embeddings"]["dropout"]
    assert cfg.training.eps_ls == training["label_smoothing"]
    assert [cfg.training.beta1, cfg.training.beta2] == training["adam_betas"]
    assert cfg.training.eps == joeynmt["comparison"]["eps"]
    assert cfg.training.warmup_steps == training["learning_rate_warmup"] == 10
    assert cfg.trainer.max_steps == training["updates"] == 20
    assert cfg.checkpoint_every == training["validation_freq"] == 5
    assert cfg.validate_every == joeynmt["comparison"]["validate_every"] == 10
    assert cfg.average == 2  # the greatest number that is tried
    assert cfg.seed == joeynmt["random_seed"] == 1
    json.dumps(joeynmt)


def test_joeynmt_s_batches_by_hand(setup: ModuleType) -> None:
    assert setup.joeynmt_batches([3, 4, 5, 2], 8) == 2  # 3 4 | 5 2
    assert setup.joeynmt_batches([3, 4, 5, 2], 9) == 2  # 3 4 5 | 2
    assert setup.joeynmt_batches([3, 4, 5, 2], 3) == 4  # 3 | 4 | 5 | 2
    assert setup.joeynmt_batches([3, 4, 5, 2], 1000) == 1


def test_the_batch_size_gives_as_many_batches(setup: ModuleType) -> None:
    longest = np.random.default_rng(7).integers(3, 40, size=2000)
    size = setup.fitting_batch_size(longest, 25)
    counts = [
        setup.joeynmt_batches(np.random.default_rng(50 + i).permutation(longest).tolist(), size)
        for i in range(10)
    ]
    assert np.mean(counts) == pytest.approx(25, abs=1)
    assert size > longest.sum() / 25  # padding counts too


def test_tokens_are_scored_without_tokenization(reports: ModuleType) -> None:
    references = ["ein mann ( links ) geht .", "zwei frauen sitzen im park ."]
    perfect = reports.BLEU.score(references, references)
    assert perfect.value == pytest.approx(100)
    assert "tok:none" in perfect.signature
    joined = ["ein mann (links) geht.", "zwei frauen sitzen im park ."]
    assert reports.BLEU.score(joined, references).value < 60
    assert sacrebleu.corpus_bleu(joined, [references], force=True).score == pytest.approx(100)


def results(reports: ModuleType, name: str, seconds: float, tgt: int, bleu: float) -> Any:
    """A toolkit's results of four updates."""
    training = reports.training(
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
    return {**training, **scores, "validations": points}


def both(reports: ModuleType, mt: float, joeynmt: float) -> dict[str, Any]:
    """The entry of a seed, by the toolkits' test BLEU."""
    by_toolkit = {
        "mt": results(reports, "mt", 2.0, 100, mt),
        "joeynmt": results(reports, "joeynmt", 5.0, 101, joeynmt),
    }
    return {"conclusions": reports.conclusions(by_toolkit), "results": by_toolkit}


def test_sums_table_and_conclusions_by_hand(reports: ModuleType) -> None:
    seed = both(reports, 41.5, 40.0)
    mt = seed["results"]["mt"]
    assert mt["updates"] == 4
    assert mt["target tokens an update"] == 102.5
    assert mt["seconds"] == 8.0
    assert mt["CPU seconds"] == 4
    assert mt["tokens a second"] == round((4 * 150 + 10) / 8)
    assert seed["conclusions"] == {
        "test BLEU, mt - peer": 1.5,
        "validation BLEU, mt - peer": 1.5,
        "wall time, peer / mt": 2.5,
        "CPU time, peer / mt": 1.0,
        "target tokens an update, peer / mt": pytest.approx(1.0098),
    }
    text = reports.markdown({"3": seed, "5": both(reports, 40.0, 41.0)})
    assert [line.split("|")[2].strip() for line in text.splitlines()[2:]] == ["3", "3", "5", "5"]
    row = table_rows("\n".join(text.splitlines()[:3]))["mt"]
    assert row == ["3", "4", "102", "0.1", "0.1", "76", "7.25", "2", "42.50", "41.50"]


def test_means_over_seeds_by_hand(reports: ModuleType) -> None:
    pairs = {"1": (41.0, 40.0), "2": (42.0, 43.0), "3": (43.0, 40.0)}
    summary = reports.over_seeds({seed: both(reports, *pair) for seed, pair in pairs.items()})
    assert summary["seeds"] == 3
    assert summary["test BLEU"] == {
        "mt": 42.0,
        "joeynmt": 41.0,
        "mt - peer": 1.0,
        "deviation": {"mt": 1.0, "joeynmt": 1.73},
        "standard error of mt - peer": 1.15,  # sqrt((1 + 3) / 3)
    }
    assert summary["validation BLEU"]["mt"] == 43.0
    assert summary["validations where mt has the lower perplexity"] == "3 of 6"
    one_seed = reports.over_seeds({"1": both(reports, 41.0, 40.0)})
    assert one_seed["test BLEU"] == {"mt": 41.0, "joeynmt": 40.0, "mt - peer": 1.0}


def test_the_files_of_both_trainings_are_read_and_drawn(
    setup: ModuleType, reports: ModuleType, plan: Any, small_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_trainings(setup, plan, small_tokenizer)
    by_toolkit = reports.results(plan, {"mt": 2, "joeynmt": 1})
    assert by_toolkit["mt"]["test BLEU"] == 100.0 > by_toolkit["joeynmt"]["test BLEU"]
    model = checkpoint.load(plan.work / "mt" / "model").model
    assert by_toolkit["mt"]["parameters"] == sum(w.numel() for w in model.parameters())
    assert [by_toolkit[name]["averaged"] for name in setup.TOOLKITS] == [2, 1]
    by_count = by_toolkit["mt"]["validation BLEU by the mean of so many checkpoints"]
    assert 0 < by_count["1"] < by_count["2"] == by_toolkit["mt"]["validation BLEU"] == 100.0
    assert [reports.best_average(plan, name) for name in setup.TOOLKITS] == [
        2,
        1,
    ]  # of equals, the least
    point = {"step": 20, "seconds": 60.0, "perplexity": 12.5}
    assert by_toolkit["mt"]["validations"] == [{**point, "bleu": 50.0}]
    assert by_toolkit["joeynmt"]["validations"] == [{**point, "bleu": pytest.approx(100)}]
    bootstrap = by_toolkit["test BLEU, paired bootstrap"]
    assert "bs:1000" in bootstrap["signature"]
    assert bootstrap["95%, half"]["mt"] == 0.0 < bootstrap["95%, half"]["joeynmt"]
    assert bootstrap["p"] < 0.05
    pytest.importorskip("matplotlib")
    reports.draw(
        {"1": {"results": by_toolkit}, "2": {"results": by_toolkit}}, tmp_path / "curves.png"
    )
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def write_trainings(setup: ModuleType, plan: Any, tokenizer: Tokenizer) -> None:
    """Write the files of two trainings: mt translates perfectly, Joey NMT does not."""
    model = Transformer(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1)
    checkpoint.save(plan.work / "mt" / "model", model, tokenizer, 9, ["en", "de"], {})
    references = texts(plan.source, "validation")[1]
    pieces = ["▁" + line.replace(" ", " ▁") for line in references]
    validations = {"mt": {"bleu": 50.0}, "joeynmt": {"pieces": pieces}}
    (plan.work / "joeynmt").mkdir()
    about = {"parameters": 7, "checkpoints": [10, 20], "versions": {}}
    (plan.work / "joeynmt" / "about.json").write_text(json.dumps(about))
    for name, validation in validations.items():
        folder = plan.work / name
        update = {"step": 20, "seconds": 60.0, "cpu_seconds": 50.0, "src": 5, "tgt": 6}
        setup.write_lines(folder / "clock.jsonl", [json.dumps(update)])
        line = json.dumps({"step": 20, "perplexity": 12.5, **validation})
        setup.write_lines(folder / "validations.jsonl", [line])
        wrong = [line.replace("hund", "katze") for line in references]
        wrong[0] = references[0]
        for split, count in itertools.product(("validation", "test"), (1, 2)):
            hypotheses = references if (name, count) == ("mt", 2) else wrong
            setup.write_lines(setup.hypotheses(plan, name, split, count), hypotheses)


def test_the_test_set_is_translated_by_the_mean_that_is_best_on_the_validation_set(
    comparison: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    monkeypatch.setattr(comparison, "translate", lambda plan, *options: done.append(options[:3]))
    best = {"mt": 1, "joeynmt": 2}
    monkeypatch.setattr(comparison.reports, "best_average", lambda plan, name: best[name])
    assert comparison.translate_both(plan, "python") == best
    assert done == [
        *(("mt", "validation", 1), ("mt", "validation", 2), ("mt", "test", 1)),
        *(("joeynmt", "validation", 1), ("joeynmt", "validation", 2), ("joeynmt", "test", 2)),
    ]


def test_mt_translates_by_the_mean_of_its_last_checkpoints(
    comparison: ModuleType, setup: ModuleType, plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, averaged = plan.work / "mt" / "checkpoints", []
    folder.mkdir(parents=True)
    for step in (10, 15, 20):
        (folder / f"step-{step:08}.ckpt").touch()
    (folder / "last.ckpt").touch()

    def run(command: list[Any], plan: Any, name: str) -> None:
        averaged.append([Path(argument).name for argument in command[1:]])

    class FakeTranslator:
        @classmethod
        def load(cls, path: Path, device: str) -> "FakeTranslator":
            return cls()

        def translate(self, sources: list[str], **search: Any) -> list[Any]:
            assert search == {"beam_size": 5, "alpha": 1.0}
            return [SimpleNamespace(text="ein hund") for _ in sources]

    monkeypatch.setattr(comparison, "run", run)
    monkeypatch.setattr(comparison, "Translator", FakeTranslator)
    comparison.translate(plan, "mt", "test", 2, "python")
    last_two = ["step-00000015.ckpt", "step-00000020.ckpt"]
    assert averaged == [["average_checkpoints.py", *last_two, "--output", "mean-2"]]
    assert setup.read_lines(plan.work / "mt.2.test") == ["ein hund"] * 4
    comparison.translate(plan, "mt", "test", 2, "python")
    assert len(averaged) == 1  # nothing is done again
    with pytest.raises(FileNotFoundError, match="4 checkpoints are not there"):
        comparison.translate(plan, "mt", "test", 4, "python")


def test_every_seed_has_its_own_folder_and_results(
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
            raise OSError("training did not finish")
        plans.append(plan)
        return both(reports, 40.0 + plan.seed, 41.0)

    def seeds() -> list[str]:
        return list(json.loads(output.read_text())["seeds"])

    monkeypatch.setattr(comparison, "compare", compare)
    data = [f"--{split}={tmp_path / split}" for split in ("train", "validation", "test")]
    common = [*data, f"--work={tmp_path / 'w'}", f"--output={output}"]
    common += ["--python", f"joeynmt={sys.executable}"]
    assert comparison.main([*common, "--seed", "2", "7"]) == 0
    assert [(plan.seed, plan.work.name) for plan in plans] == [(2, "seed-2"), (7, "seed-7")]
    assert seeds() == ["2", "7"]
    assert json.loads(output.read_text())["over seeds"]["test BLEU"]["mt - peer"] == 3.5
    assert re.search(r"\| joeynmt +\| +7 \|", capsys.readouterr().out)
    assert comparison.main([*common, "--seed", "7", "9"]) == 2
    assert seeds() == ["7"]  # the results before the failure are kept
    plans.clear()
    assert comparison.main([*common, "--seed", "3", "7", "--updates", "1270"]) == 2
    assert "seed-7 was made with {" in capsys.readouterr().err
    assert not plans  # the error comes before seed 3 is trained


@pytest.mark.parametrize(("wrong", "message"), [("0", "at least 1"), ("2", "names one twice")])
def test_seeds_that_make_no_sense(
    comparison: ModuleType, wrong: str, message: str, capsys: Any
) -> None:
    common = ["--train=a", "--validation=b", "--test=c", "--python=joeynmt=x", "--output=o.json"]
    with pytest.raises(SystemExit):
        comparison.main([*common, "--seed", "2", wrong])
    assert message in capsys.readouterr().err


def test_a_folder_holds_one_comparison(comparison: ModuleType, plan: Any) -> None:
    comparison.remember_plan(plan)
    comparison.remember_plan(plan)
    with pytest.raises(ValueError, match="name another --work"):
        comparison.remember_plan(plan._replace(updates=21))
    comparison.remember_plan(plan._replace(average=(2,)))  # training keeps as many checkpoints
    with pytest.raises(ValueError, match="name another --work"):
        comparison.remember_plan(plan._replace(average=(1, 2, 3)))


def test_an_interrupted_training_does_not_count(comparison: ModuleType, plan: Any) -> None:
    folder = plan.work / "mt" / "model"
    folder.mkdir(parents=True)
    for steps, done in ((19, False), (20, True)):
        about = {"training": {"steps": steps, "validation sacreBLEU": 1.0}}
        (folder / "config.json").write_text(json.dumps(about))
        assert comparison.is_trained(plan, "mt") == done
    assert not comparison.is_trained(plan, "joeynmt")


def test_wrong_input_is_reported_in_one_line(
    comparison: ModuleType, plan: Any, tmp_path: Path, capsys: Any
) -> None:
    data = [f"--{split}={tmp_path / split}" for split in ("train", "validation", "test")]
    common = [*data, "--work", str(tmp_path / "w"), "--output", str(tmp_path / "o.json")]
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
