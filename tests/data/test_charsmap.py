"""A normalisation table of SentencePiece that leads outside itself is refused."""

import io

import numpy as np
import pytest
import sentencepiece

from mt.data.charsmap import check_charsmaps
from mt.data.tokenizer import Tokenizer

TRIE_WITHOUT_LEAF = np.full(256, 2**31, "<u4")  # no unit has a label
TRIE_WITHOUT_LEAF[0] = 0
TEXT = b"ss\0"


def field(number: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes."""
    size, length = len(content), b""
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def model(units: np.ndarray, texts: bytes = TEXT, normalizer: int = 3) -> bytes:
    table = (4 * len(units)).to_bytes(4, "little") + units.astype("<u4").tobytes() + texts
    return field(normalizer, field(1, b"name") + field(2, table))


def with_unit(position: int, unit: int, leaf: int | None = None) -> np.ndarray:
    units = TRIE_WITHOUT_LEAF.copy()
    units[position] = unit
    if leaf is not None:
        units[position ^ unit >> 10] = 2**31 | leaf
    return units


@pytest.mark.parametrize("rule", ["nfkc", "nmt_nfkc", "nfkc_cf", "nmt_nfkc_cf", "identity"])
def test_the_librarys_own_tables_pass(rule: str) -> None:
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["bear bird key door"] * 9), model_writer=proto, vocab_size=20,
        model_type="bpe", normalization_rule_name=rule, minloglevel=2,
    )  # fmt: skip
    check_charsmaps(proto.getvalue())


def test_a_small_table_passes() -> None:
    check_charsmaps(model(TRIE_WITHOUT_LEAF))
    check_charsmaps(model(with_unit(65, 3 << 10 | 1 << 8 | 65, leaf=2)))
    check_charsmaps(model(with_unit(65, 2**31 | 2**30)))  # a leaf's value is no place
    check_charsmaps(b"")


@pytest.mark.parametrize("normalizer", [3, 5])
@pytest.mark.parametrize(
    "units",
    [
        with_unit(0, 256 << 10),
        with_unit(0, 2**31 | 256 << 10),  # the look-up begins here, whatever its label
        with_unit(65, 256 << 10 | 65),
        with_unit(65, 1 << 10 | 1 << 9 | 65),  # an offset of 256, in the long form
        with_unit(255, 2**21 - 1 << 10 | 255),
        with_unit(65, 3 << 10 | 1 << 8 | 65, leaf=3),
        with_unit(65, 3 << 10 | 1 << 8 | 65, leaf=2**31 - 1),
        TRIE_WITHOUT_LEAF[:255],
    ],
    ids=range(8),
)
def test_a_table_that_leads_outside_itself_is_refused(units: np.ndarray, normalizer: int) -> None:
    with pytest.raises(ValueError, match="leads outside"):
        check_charsmaps(model(units, normalizer=normalizer))
    with pytest.raises(ValueError, match="leads outside"):  # also where a good one comes first
        check_charsmaps(model(TRIE_WITHOUT_LEAF) + model(units, normalizer=normalizer))


@pytest.mark.parametrize("table", [b"\0", b"\0\0\0\0a\0", b"\4\0\0\0abc", b"\5\0\0\0abcde\0"])
def test_a_table_cut_short_is_refused(table: bytes) -> None:
    with pytest.raises(ValueError, match="cut short"):
        check_charsmaps(field(3, field(2, table)))
    with pytest.raises(ValueError, match="cut short"):
        check_charsmaps(model(TRIE_WITHOUT_LEAF, texts=b"no end"))


@pytest.mark.parametrize(
    "proto",
    [b"\x0a", b"\x0a\x05abc", b"\x80" * 11, b"\x0b", b"\x0c", b"\x0d123", b"\x09123", b"\x08"],
)
def test_damaged_protocol_buffers_are_refused(proto: bytes) -> None:
    with pytest.raises(ValueError, match=r"a field|a number"):
        check_charsmaps(proto)


def test_a_model_with_such_a_table_is_refused(small_tokenizer: Tokenizer) -> None:
    crafted = small_tokenizer.proto + model(with_unit(0, 256 << 10))
    with pytest.raises(ValueError, match="not a SentencePiece model, or a damaged one"):
        Tokenizer(crafted)


def test_a_model_whose_pieces_are_not_utf_8_is_refused(small_tokenizer: Tokenizer) -> None:
    piece = small_tokenizer.pieces([VOCABULARY_ENTRY])[0].encode()
    assert small_tokenizer.proto.count(piece) >= 1
    with pytest.raises(ValueError, match="not a SentencePiece model, or a damaged one"):
        Tokenizer(small_tokenizer.proto.replace(piece, b"\xff" * len(piece), 1))


VOCABULARY_ENTRY = 60
