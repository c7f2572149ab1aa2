"""Sentence pairs of the Hugging Face hub and of folders that mirror it."""

import json
import os
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import PAIRS, write_lines
from corpus_formats import nasty_pairs

from mt.data import hub_reader, preprocessing
from mt.data.preprocessing import PairFilter
from mt.data.readers import HubReader
from mt.data.tokenizer import Tokenizer


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hub-cache"))
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    datasets.disable_progress_bars()


@pytest.fixture
def mirror(tmp_path: Path, hub_cache: None) -> Path:
    """A folder laid out as wmt/wmt14 is on the hub."""
    shards = {
        "train-00000-of-00002": PAIRS[:20],
        "train-00001-of-00002": PAIRS[20:],
        "validation-00000-of-00001": PAIRS[:6],
        "test-00000-of-00001": nasty_pairs(),
    }
    (tmp_path / "wmt14" / "de-en").mkdir(parents=True)
    for name, pairs in shards.items():
        rows = {"translation": [{"de": de, "en": en} for en, de in pairs]}
        features = datasets.Features({"translation": datasets.Translation(["de", "en"])})
        table = datasets.Dataset.from_dict(rows, features=features)
        table.to_parquet(tmp_path / "wmt14" / "de-en" / f"{name}.parquet")
    return tmp_path / "wmt14"


def test_a_mirror_of_the_hub_gives_all_shards_in_order(mirror: Path) -> None:
    reader = HubReader(str(mirror), "de-en")
    assert list(reader.pairs("train")) == PAIRS
    assert list(reader.pairs("validation")) == PAIRS[:6]
    assert list(reader.pairs("test")) == nasty_pairs()


def test_the_hub_turns_around(mirror: Path) -> None:
    reader = HubReader(str(mirror), "de-en", src="de", tgt="en")
    assert list(reader.pairs("train")) == [(de, en) for en, de in PAIRS]


def test_a_plain_structure_and_flat_columns_do_as_well(tmp_path: Path, hub_cache: None) -> None:
    en, de = (list(side) for side in zip(*PAIRS, strict=True))
    nested = [{"en": source, "de": target} for source, target in PAIRS]
    for name, columns in (
        ("flat", {"de": de, "note": en, "en": en}),
        ("nested", {"id": de, "translation": nested}),
        ("both", {"de": de, "en": en, "translation": de}),  # which here is a text
    ):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "train-00000-of-00001.parquet"
        pa.parquet.write_table(pa.table(columns), path)
        assert list(HubReader(str(tmp_path / name)).pairs("train")) == PAIRS


def test_datasets_reads_a_mirror_with_different_file_names(tmp_path: Path, hub_cache: None) -> None:
    rows = [json.dumps({"translation": {"en": en, "de": de}}) for en, de in PAIRS]
    write_lines(tmp_path / "set" / "train.jsonl", rows)
    assert list(HubReader(str(tmp_path / "set")).pairs("train")) == PAIRS


@pytest.mark.parametrize(
    ("src", "tgt", "wrong"), [("en", "fr", "fr"), ("english", "de", "english")]
)
def test_a_language_that_is_not_there_is_named(
    mirror: Path, src: str, tgt: str, wrong: str
) -> None:
    with pytest.raises(ValueError, match=f"no '{wrong}' among its columns") as caught:
        list(HubReader(str(mirror), "de-en", src, tgt).pairs("validation"))
    with pytest.raises(ValueError, match=f"no '{wrong}' among its columns"):
        HubReader(str(mirror), "de-en", src, tgt).identity("validation")  # before slow work
    assert "'de'" in str(caught.value)
    assert "'en'" in str(caught.value)


def test_a_damaged_shard_is_named(mirror: Path) -> None:
    shard = mirror / "de-en" / "train-00000-of-00002.parquet"
    shard.write_bytes(shard.read_bytes()[:-20])
    with pytest.raises(
        ValueError, match=r"train-00000-of-00002\.parquet: not a whole Parquet file"
    ):
        list(HubReader(str(mirror), "de-en").pairs("train"))


def test_a_shard_damaged_inside_is_named(mirror: Path) -> None:
    shard = mirror / "de-en" / "train-00000-of-00002.parquet"
    content = bytearray(shard.read_bytes())
    content[4:200] = bytes(196)
    shard.write_bytes(content)
    with pytest.raises(ValueError, match=r"train-00000-of-00002\.parquet: damaged: "):
        list(HubReader(str(mirror), "de-en").pairs("train"))


def test_a_mirror_without_one_of_its_shards_is_refused(mirror: Path) -> None:
    (mirror / "de-en" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(ValueError, match=r"train-00000-of-00002\.parquet is missing"):
        HubReader(str(mirror), "de-en").identity("train")


def test_a_mirror_without_a_split_is_refused(mirror: Path) -> None:
    (mirror / "de-en" / "validation-00000-of-00001.parquet").unlink()
    reader = HubReader(str(mirror), "de-en")
    reader.identity("train")
    with pytest.raises(ValueError, match=r"de-en: no validation-\*\.parquet"):
        reader.identity("validation")


def test_a_changed_file_of_another_layout_is_another_corpus(tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text("{}\n")
    reader = HubReader(str(tmp_path))
    before = reader.identity("train")
    os.utime(file, (1e9, 1e9))
    assert reader.identity("train") != before


def test_a_changed_shard_is_another_corpus(mirror: Path) -> None:
    reader = HubReader(str(mirror), "de-en")
    before = reader.identity("train")
    assert reader.identity("train") == before
    assert reader.identity("test") != before
    shard = mirror / "de-en" / "train-00001-of-00002.parquet"
    os.utime(shard, (1, 1))
    assert reader.identity("train") != before


@pytest.mark.parametrize(
    ("split", "files"),
    [
        ("train", "data=files data.train=PREFIX data.validation=PREFIX (PREFIX.en, PREFIX.de)"),
        ("test", "data=files data.test=PREFIX (PREFIX.en, PREFIX.de)"),
    ],
)
def test_without_the_hub_the_message_says_what_else_to_do(
    hub_cache: None, monkeypatch: pytest.MonkeyPatch, split: str, files: str
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("[Errno -3] Temporary failure in name resolution")

    monkeypatch.setattr(hub_reader.huggingface_hub.HfApi, "dataset_info", unreachable)
    monkeypatch.setattr(hub_reader.datasets, "load_dataset", unreachable)
    with pytest.raises(ConnectionError, match="'wmt/wmt14'") as caught:
        list(HubReader("wmt/wmt14", "de-en").pairs(split))
    message = str(caught.value)
    assert message.isprintable()  # one line
    for words in (
        f"de-en, {split}",
        "Temporary failure in name resolution",
        files,
        "data.path=FOLDER",
        "data=phrasebook",
    ):
        assert words in message
    assert "mt.train" not in message  # mt.evaluate reads it too


def test_the_hub_is_prepared_like_files(
    small_tokenizer: Tokenizer, tmp_path: Path, mirror: Path
) -> None:
    reader = HubReader(str(mirror), "de-en")
    prepared = preprocessing.prepare(reader, "train", small_tokenizer, PairFilter(), tmp_path)
    src, tgt = prepared.fetch(list(range(len(PAIRS))))
    for side, ids in enumerate((src, tgt)):
        expected = small_tokenizer.encode([pair[side] for pair in PAIRS])
        assert [array.tolist() for array in ids] == expected


@pytest.mark.parametrize("nested", [False, True])
def test_a_row_without_a_text_is_named(nested: bool, tmp_path: Path, hub_cache: None) -> None:
    columns: dict[str, list[object]] = {"en": ["a", None, "c"], "de": ["A", "B", "C"]}
    if nested:
        columns = {"translation": [{"en": "a", "de": "A"}, None, {"en": "c", "de": "C"}]}
    pa.parquet.write_table(pa.table(columns), tmp_path / "train-00000-of-00001.parquet")
    with pytest.raises(ValueError, match="train: row 2 lacks a text"):
        list(HubReader(str(tmp_path)).pairs("train"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": None}, "data.path=None: must be a text"),
        ({"path": ""}, "data.path='': must be a text"),
        ({"path": "x", "config": 5}, "data.config=5: must be a text"),
    ],
)
def test_a_data_set_has_a_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HubReader(**options)
