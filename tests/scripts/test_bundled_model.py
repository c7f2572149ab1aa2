"""scripts/bundled_model/: how the training text of the bundled model is cleaned and weighed."""

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from conftest import babbler
from script_helpers import load_script

from mt.data import phrasebook
from mt.data import tokenizer as tokenizers
from mt.data.phrasebook import variants
from mt.data.tokenizer import Tokenizer
from mt.inference.translator import Translator
from mt.model import checkpoint


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "clean")


@pytest.fixture
def mix(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load_script(monkeypatch, "mix")


def test_a_placeholder_of_software_is_no_price(clean: ModuleType) -> None:
    pair = "Cannot open $1 for $300.", "Kann $1 für $300 nicht öffnen."
    _, german = clean.rules.normal_german_of_software(*pair)
    assert german == "Kann $1 für 300 $ nicht öffnen."


@pytest.mark.parametrize(
    ("german", "normal"),
    [
        ('Er sagte: "Ja."', "Er sagte: „Ja.“"),
        ("Der »Rand« und das ›Feld‹", "Der „Rand“ und das ‚Feld‘"),
        ("„Ja", "„Ja"),
        ('5" breit', '5" breit'),
        ("Ich muß wissen, daß er sie küßte.", "Ich muss wissen, dass er sie küsste."),
        ("Ein Prozeß im Fluß, laß das!", "Ein Prozess im Fluss, lass das!"),
        ("Der Spaß: große Füße, er aß Muße.", "Der Spaß: große Füße, er aß Muße."),
        ("Um 8.15 Uhr, z.B. heute abend", "Um 8:15 Uhr, z. B. heute Abend"),
        ("Wie geht’s? Wieviel?", "Wie geht's? Wie viel?"),
        ("Das kostet $300.", "Das kostet 300 $."),
        ("$3 Millionen", "$3 Millionen"),
        ("Es kostet US$300.", "Es kostet US$300."),
        ("Er spaßt nur, es paßt.", "Er spaßt nur, es passt."),
        ("Rot - das ist gut, 5 - 3 auch", "Rot – das ist gut, 5 - 3 auch"),
        ("für Ubuntu- Rechner, Ein- und Ausgabe", "für Ubuntu-Rechner, Ein- und Ausgabe"),
        ("Er lebt in Kyōto.", "Er lebt in Kyoto."),
        ("Es sind 1,200 und 3,500.", "Es sind 1.200 und 3,500."),
    ],
)
def test_german_is_written_in_one_way(clean: ModuleType, german: str, normal: str) -> None:
    assert clean.rules.german.normalise("There are 1,200.", german) == normal


@pytest.mark.parametrize(
    ("domain", "pair", "mended"),
    [
        ("debian-mo", ("_Open File", "Datei _öffnen"), ("Open File", "Datei öffnen")),
        ("debian-mo", ("&Save", "Speichern (&S)"), ("Save", "Speichern")),
        ("debian-mo", ("Set MAX_PATH now", "MAX_PATH setzen"), None),
        ("ddtp", ("Reads files", "liest Dateien"), ("Reads files", "Liest Dateien")),
        ("ddtp", ("It  reads your files.", "Es liest Ihre Dateien"),
         ("It reads your files.", "Es liest Ihre Dateien.")),
        ("wesnoth", ("I’ll be “back”.", "Ich komme »zurück«."),
         ('I\'ll be "back".', "Ich komme „zurück“.")),
        ("libreoffice", ("Open %PRODUCTNAME", "%PRODUCTNAME öffnen"),
         ("Open LibreOffice", "LibreOffice öffnen")),
        ("tatoeba", ("This is for you.", "Das ist für dich"),
         ("This is for you.", "Das ist für dich.")),
        ("tatoeba", ("He came at 5 p.m.", "Er kam um 17 Uhr."), None),
        ("tatoeba", ("Wait 5 minutes.", "Warte fünf Minuten."), None),
        ("debian-mo", ("Bluetooth", "Bluetooth"), None),
        ("debian-mo", ("100 % of the files", "100 % der Dateien"), None),
    ],
)  # fmt: skip
def test_pairs_are_mended(
    clean: ModuleType, domain: str, pair: tuple[str, str], mended: tuple[str, str] | None
) -> None:
    assert clean.judge(pair, clean.DOMAINS[domain]) == (mended or pair)


@pytest.mark.parametrize(
    ("reason", "english", "german"),
    [
        ("empty", "Hello", "–"),
        ("encoding", "a café", "ein cafÃ©"),
        ("other script", "Good morning", "Доброе утро"),
        ("wrong language", "I sent you a mail.", "Te acabo de enviar un correo."),
        ("too long", "word " * 130, "Wort " * 130),
        ("length ratio", "No.", "Das geht dich gar nichts an, mein lieber Freund."),
        ("question and statement", "Will you come?", "Komm doch mit."),
        ("other numbers", "It is 300 miles.", "Es sind 480 Kilometer."),
        ("other names", "I like the beach.", "Tom mag den Strand."),
        ("other names", "John is here.", "Johannes ist hier."),
    ],
)
def test_everyday_pairs_are_dropped(
    clean: ModuleType, reason: str, english: str, german: str
) -> None:
    assert clean.judge((english, german), clean.DOMAINS["tatoeba"]) == reason


@pytest.mark.parametrize(
    ("reason", "english", "german"),
    [
        ("markup", "Press <b>Enter</b>.", "<b>Enter</b> drücken."),
        ("markup", "female^Elf", "Elfe"),
        ("placeholder", "Cannot open %s.", "%s ist nicht zu öffnen."),
        ("placeholder", "Could not read '#'.", "'#' war nicht lesbar."),
        ("identifier", "media-type.foil-black", "Folie"),
        ("untranslated", "Enable LoongArch SIMD Extension", "LoongArch SIMD Extension einschalten"),
        ("untranslated", "Show all windows", "Show all windows"),
        ("symbols", "a + (b / c), x", "y - (e / f), g"),
        ("no function words", "Red Green Blue Cyan Black White Grey Pink",
         "Rot Grün Blau Cyan Schwarz Weiß Grau Rosa Lila"),
        ("numbers differ", "It takes 5 minutes.", "Es dauert 15 Minuten."),
        ("run together", "Ready.Press a key", "Bereit. Eine Taste drücken"),
        ("run together", "in the menu FileSave", "im Menü Datei, Speichern"),
        ("gap", "It is set in .", "Es wird in gesetzt."),
        ("truncated", "Open the file,", "Die Datei öffnen,"),
        ("truncated", "Open (or close", "Öffnen (oder schließen)"),
        ("colon", "The file:", "Die Datei"),
        ("capitals", "OPEN THE FILE", "DATEI ÖFFNEN"),
        ("links differ", "See http://a.org/b now", "Siehe http://a.de/b jetzt"),
        ("catalogue", "Celestial Lance Added IX", "Himmelslanze, Zusatz"),
    ],
)  # fmt: skip
def test_pairs_of_software_are_dropped(
    clean: ModuleType, reason: str, english: str, german: str
) -> None:
    assert clean.judge((english, german), clean.DOMAINS["debian-mo"]) == reason


def test_every_reason_has_an_example(clean: ModuleType) -> None:
    tables = (test_everyday_pairs_are_dropped, test_pairs_of_software_are_dropped)
    shown = {row[0] for test in tables for row in test.pytestmark[0].args[1]}  # type: ignore[attr-defined]
    rules = clean.rules.EVERYDAY_RULES + clean.rules.SOFTWARE_RULES
    assert shown == {reason for reason, _ in rules}


WORDS = {
    "red": "rot", "green": "grün", "blue": "blau", "black": "schwarz", "white": "weiß",
    "old": "alt", "new": "neu", "long": "lang", "short": "kurz", "warm": "warm", "cold": "kalt",
    "high": "hoch", "low": "tief", "soft": "weich", "hard": "hart",
}  # fmt: skip
ALIGNED = [
    (" ".join(chosen), " ".join(WORDS[word] for word in chosen))
    for chosen in itertools.islice(itertools.combinations(WORDS, 3), 0, None, 5)
]
MISALIGNED = ("red green blue", "weich hart tief")


def test_misaligned_pairs_gain_least(clean: ModuleType) -> None:
    gains = clean.ibm1.gains([*ALIGNED, MISALIGNED, ("zebra", "Zebra")])
    assert np.isnan(gains[-1])  # no word is frequent enough
    assert gains[-2] < 0
    assert gains[:-2].min() > 0.5


def write_corpus(folder: Path, rows: list[tuple[str, str, str]]) -> str:
    for side, lines in zip(("domain", "en", "de"), zip(*rows, strict=True), strict=True):
        with gzip.open(folder / f"train.{side}.gz", "wt", encoding="utf-8") as stream:
            stream.write("\n".join(lines) + "\n")
    return str(folder / "train")


def test_clean_reports_each_domain_and_refuses_unknown_ones(
    clean: ModuleType, tmp_path: Path, capsys: Any
) -> None:
    everyday = [("tatoeba", f"{en}.", f"{de}.") for en, de in ALIGNED]
    rows = [
        ("wesnoth", "Red, green, blue!", "Rötlich und grün."),  # Tatoeba's comes first
        ("wesnoth", "Attack!", "Zum Angriff!"),
        ("wesnoth", "attack", "Greift an"),
        ("news", "The minister resigned.", "Der Minister trat zurück."),
        ("tatoeba", "He came at 5.", "Er kam um 6."),
        *everyday,
    ]
    corpus, output = write_corpus(tmp_path, rows), tmp_path / "cleaned"
    assert clean.main([corpus, "--output", str(output)]) == 0
    report = json.loads((output / "report.json").read_text())
    assert report["news"] == {"read": 1, "kept": 0, "dropped": {"terms": 1}}
    assert report["wesnoth"]["dropped"] == {"duplicates": 2}
    assert report["tatoeba"]["dropped"] == {"other numbers": 1}
    assert report["tatoeba"]["kept"] == len(everyday)
    assert report["tatoeba"]["terms"] == "CC-BY 2.0 FR"
    assert (output / "wesnoth.tsv").read_text() == "en\tde\nAttack!\tZum Angriff!\n"
    assert not (output / "news.tsv").exists()
    assert clean.main([corpus, "--output", str(output)]) == 2
    assert "name another --output" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("news", "The minister resigned.", "Der Minister trat zurück.")], "no pair is left"),
        ([("tatoeba", "Yes.\nNo.", "Ja.\nNein.")], "1 domains of 2 pairs"),
        ([], "train.domain"),
    ],
)
def test_clean_ends_in_one_line(
    clean: ModuleType, tmp_path: Path, capsys: Any, rows: list[tuple[str, str, str]], message: str
) -> None:
    corpus = write_corpus(tmp_path, rows) if rows else str(tmp_path / "train")
    assert clean.main([corpus, "--output", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("english", "german", "held_out"),
    [
        ("come IN", "Tritt ein.", True),
        ("Enter.", "kommen Sie herein", True),
        ("Come in 🎉", "Kommen Sie herein 🎉", False),
        ("Come in now.", "Kommen Sie jetzt herein.", False),
        ("...", "!", False),
    ],
)
def test_held_out_is_a_side_whatever_its_case_and_punctuation(
    mix: ModuleType, english: str, german: str, held_out: bool
) -> None:
    sentences = mix.HeldOut()
    sentences.add([("Come in!", "Kommen Sie herein."), ("?", "")])
    assert ((english, german) in sentences) is held_out


@pytest.fixture
def small_phrasebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three pairs in each part and split; every derived pair is told by its text."""

    def load(split: str, parts: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(f"{split} {part} {i}.", f"{split}: {part} {i}.") for part in parts for i in "abc"]

    def derive(name: str) -> Any:
        return lambda pairs, count, seed: [(f"{name} {en}", f"{name}: {de}") for en, de in pairs]

    monkeypatch.setattr(phrasebook, "load", load)
    monkeypatch.setattr(variants, "rename", derive("renamed"))
    monkeypatch.setattr(variants, "join", derive("joined"))


@pytest.mark.usefixtures("small_phrasebook")
def test_mix_weighs_the_parts_and_leaves_out_what_is_held_out(
    mix: ModuleType, tmp_path: Path
) -> None:
    cleaned, output = tmp_path / "cleaned", tmp_path / "data"
    cleaned.mkdir()
    mix.write_tsv(cleaned / "tatoeba.tsv", [
        ("Good morning.", "Guten Morgen."),
        ("Come in!", "Herein!"),
        ("Stop it.", "Lass das."),
        ("Test grammar A?", "Probe."),
    ])  # fmt: skip
    menus = [(f"Menu {i}", f"Menü {i}") for i in range(1000)]
    prose = [(f"This is the whole sentence with number {i}.", f"Satz {i}.") for i in range(1000)]
    mix.write_tsv(cleaned / "manpages.tsv", menus + prose)
    dictionary = tmp_path / "cleaned-ding"
    dictionary.mkdir()
    phrases = [(f"the thing of the number {i}", f"das Ding Nummer {i}") for i in range(1000)]
    mix.write_tsv(dictionary / "ding-phrases.tsv", phrases)
    (tmp_path / "dev.en").write_text("come in\n")
    (tmp_path / "dev.de").write_text("Kommen Sie herein.\n")
    (tmp_path / "other.txt").write_text("Tatoeba\nSTOP IT\n")
    files = [str(tmp_path / "dev"), str(tmp_path / "other.txt")]
    folders = [str(cleaned), str(dictionary)]
    assert mix.main([*folders, "--output", str(output), "--held-out", *files]) == 0

    report = json.loads((output / "report.json").read_text())
    assert report["tatoeba"] == {
        "pairs": 1, "held out": 3, "lines": 3, "words, both sides": 12
    }  # fmt: skip
    assert report["themes"]["lines"] == 12
    assert report["ding-phrases"]["lines"] == 1000
    assert report["renamed"]["pairs"] == 10  # one of Tatoeba, three of each written part
    expected = 1000 * mix.MENU_WEIGHT + 1000 * mix.SENTENCE_WEIGHTS["manpages"]
    assert report["manpages"]["lines"] == pytest.approx(expected, abs=70)
    lines = (output / "train.tsv").read_text().splitlines()
    assert lines[0] == "en\tde"
    assert len(lines) - 1 == report["total"]["lines"]
    counts = Counter(lines)
    assert counts["Good morning.\tGuten Morgen."] == 3
    assert counts["train themes a.\ttrain: themes a."] == 4
    assert not [line for line in lines if "Herein" in line or "Lass" in line or "Probe" in line]
    test_split = (output / "test.themes.tsv").read_text().splitlines()
    assert test_split == ["en\tde", *(f"test themes {i}.\ttest: themes {i}." for i in "abc")]
    for split in ("validation", "test"):
        held_out = (output / f"{split}.software.tsv").read_text().splitlines()[1:]
        assert 5 <= len(held_out) <= 30  # 1.7% of the prose, in the mean; menus are too short
        assert all("whole sentence" in pair and counts[pair] == 0 for pair in held_out)

    again = tmp_path / "again"
    assert mix.main([*folders, "--output", str(again), "--held-out", *files]) == 0
    assert (again / "train.tsv").read_text() == (output / "train.tsv").read_text()

    other = ["--output", str(tmp_path / "other"), "--factor", "themes=0.5", "-f", "manpages=0"]
    assert mix.main([*folders, *other, "--held-out", *files]) == 0
    changed = json.loads((tmp_path / "other" / "report.json").read_text())
    assert (changed["themes"]["lines"], changed["manpages"]["lines"]) == (6, 0)
    assert changed["situations"] == report["situations"]


@pytest.mark.usefixtures("small_phrasebook")
def test_mix_ends_in_one_line(mix: ModuleType, tmp_path: Path, capsys: Any) -> None:
    assert mix.main([str(tmp_path), "--output", str(tmp_path / "data")]) == 2
    assert "no .tsv files" in capsys.readouterr().err
    mix.write_tsv(tmp_path / "tatoeba.tsv", [("Yes.", "Ja.")])
    arguments = [str(tmp_path), "--output", str(tmp_path / "data"), "--held-out", "missing"]
    assert mix.main(arguments) == 2
    assert "missing" in capsys.readouterr().err
    assert mix.main([*arguments[:3], "--factor", "poems=2"]) == 2
    assert "no part poems; there are tatoeba, grammar" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert mix.main([str(tmp_path), str(tmp_path / "empty"), *arguments[1:3]]) == 2
    assert f"{tmp_path / 'empty'}: no .tsv files" in capsys.readouterr().err
    mix.write_tsv(tmp_path / "empty" / "tatoeba.tsv", [("No.", "Nein.")])
    assert mix.main([str(tmp_path), str(tmp_path / "empty"), *arguments[1:3]]) == 2
    assert f"tatoeba.tsv is in {tmp_path} and in" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


# After the training


def test_rare_pieces_are_spelt_in_shorter_ones(
    bpe: Tokenizer, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(monkeypatch, "rare_pieces")
    text = tmp_path / "train.tsv"
    text.write_text("the bear\tder Bär\n" * 3, "utf-8")
    counts = script.count(bpe, text)
    assert counts.sum() == 3 * sum(map(len, bpe.encode(["the bear", "der Bär"])))
    proto, number = script.without_rare(bpe.proto, counts, 3)
    spelt = Tokenizer(proto)
    assert number > 0
    assert spelt.encode(["the bear"]) == bpe.encode(["the bear"])
    rare = next(
        piece for i, piece in enumerate(bpe.all_pieces())
        if piece.startswith("▁") and len(piece) > 4 and counts[i] < 3
    )  # fmt: skip
    word = rare.removeprefix("▁")
    assert len(bpe.encode([word])[0]) == 1
    (ids,) = spelt.encode([word])
    assert len(ids) > 1
    assert spelt.decode([ids]) == [word]
    assert spelt.decode(bpe.encode([word])) == [word]  # the model may still write it

    output = tmp_path / "spelt"
    assert script.main([f"{model_folder}", f"{text}", "--output", f"{output}"]) == 0
    assert script.main([f"{model_folder}", f"{text}", "--output", f"{tmp_path}"]) == 2
    assert text.exists()
    before, after = checkpoint.load(model_folder), checkpoint.load(output)
    assert after.tokenizer.proto != before.tokenizer.proto
    weights = before.model.state_dict()
    assert all(torch.equal(w, weights[n]) for n, w in after.model.state_dict().items())


@pytest.mark.slow
def test_the_scores_of_a_model_are_those_of_mt_evaluate(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script(monkeypatch, "scores")
    (tmp_path / "tatoeba").mkdir()
    for side, line in (("en", "the bear"), ("de", "der Bär")):
        with gzip.open(tmp_path / "tatoeba" / f"val.{side}.gz", "wt") as stream:
            stream.write(f"{line}\n" * 3)
    monkeypatch.setattr(script, "FILES", ["tatoeba/val"])
    monkeypatch.setattr(script, "PARTS", ())
    output = tmp_path / "scores.json"
    command = [f"{model_folder}", "--data", f"{tmp_path}", "--output", f"{output}"]
    assert script.main(command) == 0
    test = json.loads(output.read_text())["tests"]["tatoeba/val"]
    assert test["sentences"] == 3
    assert [run["beam_size"] for run in test["runs"]] == [1, 4]
    assert test["command"] == ("python -m mt.evaluate src=tatoeba/val.en.gz ref=tatoeba/val.de.gz")
    assert script.main([*command, "--search"]) == 0
    rows = json.loads(output.read_text())["rows"]
    assert {row["beam_size"] for row in rows} == {1, 4}
    assert len(rows) == 1 + len(script.ALPHAS)


def test_models_are_scored_on_the_validation_sets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model_folder: Path
) -> None:
    script = load_script(monkeypatch, "choose")
    (tmp_path / "tatoeba").mkdir()
    for side, line in (("en", "the bear"), ("de", "der Bär")):
        (tmp_path / "tatoeba" / f"val.{side}").write_text(f"{line}\n" * 3)
    known = Translator.load(model_folder, "cpu").translate(["a b,"], beam_size=4, alpha=1.2)
    for part in script.PARTS:
        rows = ["en\tde", f"a b,\t{known[0].text}", "c d:\tanders", "The bear.\tDer Bär."]
        (tmp_path / f"validation.{part}.tsv").write_text("\n".join(rows) + "\n")
    output = tmp_path / "choice.json"
    folders = ["--data", f"{tmp_path}", "--mixture", f"{tmp_path}", "--output", f"{output}"]
    assert script.main([f"{model_folder}", *folders]) == 0
    scores = json.loads(output.read_text())[f"{model_folder}"]
    assert scores.pop("short texts exactly as written, percent") == 50.0
    assert set(scores) == {"tatoeba/val", *script.PARTS}


def test_vectors_of_characters_that_training_lacks_are_drawn_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load_script(monkeypatch, "draw_unseen")
    sentences = [f"a b c {i}" for i in range(50)]
    tokenizer = tokenizers.train(sentences, 700, exact=False, byte_fallback=True)
    pieces = tokenizer.all_pieces()
    model = babbler(len(pieces))
    weights = model.embedding.weight.data
    lacking = [pieces.index(c) for c in "©§à"]
    for i in lacking:
        weights[i] = weights[pieces.index("<0xC0>")] * 1.5
    before = weights.clone()
    checkpoint.save(tmp_path / "old", model, tokenizer, 20, ["en", "de"], {})

    assert script.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out.startswith("3 drawn anew: ")
    after = checkpoint.load(tmp_path / "new").model.embedding.weight.data
    changed = (after != before).any(dim=1).nonzero()[:, 0].tolist()
    assert changed == sorted(lacking)
    assert torch.cosine_similarity(after[lacking[0]], after[lacking[1]], dim=0) < 0.9
    assert 0.3 < after[lacking].norm(dim=1).mean() / after.norm(dim=1).mean() < 3
    assert script.main([str(tmp_path / "old"), str(tmp_path / "new")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_a_vocabulary_without_bytes_has_none(
    monkeypatch: pytest.MonkeyPatch, model_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    script = load_script(monkeypatch, "draw_unseen")
    assert script.main([str(model_folder), str(tmp_path / "new")]) == 2
    assert "a vocabulary without bytes" in capsys.readouterr().err
