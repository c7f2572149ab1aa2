"""Byte-pair encoding shared by both languages (section 5.1), by SentencePiece: text in, ids out."""

import io
import json
import os
import re
import tempfile
import unicodedata
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece

from mt.data import normalisation
from mt.data.charsmap import check_charsmaps
from mt.data.special_ids import BOS, EOS, PAD, SPECIAL_IDS, UNK
from mt.utils.atomic import atomic_write
from mt.utils.checks import check_int
from mt.utils.json_io import parse_json, read_regular

MAX_VOCAB_SIZE = 2**20  # pieces; the largest vocabularies of published models have a million
# Characters; longer words are left out when a tokenizer is trained. NFKC makes up to 18 characters
# of one, and SentencePiece ends the whole process at a word of 65,536.
MAX_WORD = 3000
RARE = 100_000  # with byte fallback, one of so many characters needs no piece of its own
BYTES = 256
# SentencePiece starts threads for each list; a shorter one is done before they are.
FEW = 64
# In a model file this empties normalizer_spec.normalization_rule_tsv, the path of a temporary file.
_NO_PATH = b"\x1a\x02\x32\x00"


class Tokenizer:
    """A trained SentencePiece model.

    ``proto`` is the content of a ``.model`` file; checkpoints and model folders hold these bytes.
    ``byte_fallback``: characters outside the vocabulary are spelled in bytes, and none is UNK.
    Raises ValueError unless they are a SentencePiece model with this project's special ids.
    """

    byte_fallback = False

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        p, self._pieces = _processor(proto)
        self._processor = p
        special_ids = (p.pad_id(), p.unk_id(), p.bos_id(), p.eos_id())
        if special_ids != SPECIAL_IDS:
            raise ValueError(
                f"a SentencePiece model with pad, unk, bos, eos = {special_ids}; they must be "
                f"{SPECIAL_IDS}, as mt.data.tokenizer.train makes them"
            )
        self.byte_fallback = p.is_byte(p.piece_to_id("<0x00>"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Tokenizer":
        """Read a ``.model`` file. Raises OSError or ValueError, which name the file."""
        content = read_regular(path)
        try:
            return PairTokenizer(content) if content.startswith(b"PK") else cls(content)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    @property
    def vocab_size(self) -> int:
        return self._processor.vocab_size()

    @property
    def split_digits(self) -> bool:
        """Whether no piece has two digits."""
        return not any(re.match("(?!<0x).*[0-9][0-9]", piece) for piece in self.all_pieces())

    def encode(self, sentences: list[str]) -> list[list[int]]:
        """Ids of each sentence, without bos and eos. Any Unicode is accepted.

        Raises TypeError for one text instead of a list: it would be a list of its letters.
        """
        _check_list(sentences)
        lines = [_one_line(text, self.byte_fallback) for text in sentences]
        if len(lines) < FEW:
            return [self._processor.encode(line) for line in lines]
        return self._processor.encode(lines)

    def encode_target(self, sentences: list[str]) -> list[list[int]]:
        """As ``encode``, for sentences in the target language."""
        return self.encode(sentences)

    def sample(self, sentences: list[str], dropout: float, seed: int) -> list[list[int]]:
        """As ``encode``, but each merge of pieces is left out with probability ``dropout``.

        BPE-dropout (Provilkov et al. 2020): a word is split differently each time, into more
        pieces. The same ``seed``, below 2**32, gives the same pieces.
        """
        # SentencePiece seeds a thread once, when the thread begins. Each list of at least two
        # sentences gets a new thread.
        sentencepiece.set_random_generator_seed(seed)
        lines = [*(_one_line(text, self.byte_fallback) for text in sentences), ""]
        return self._processor.encode(
            lines, enable_sampling=True, alpha=dropout, nbest_size=-1, num_threads=1
        )[:-1]

    def decode(self, ids: list[list[int]]) -> list[str]:
        """The text of each list of ids, without the special ids."""
        rows = [[i for i in row if i not in SPECIAL_IDS] for row in ids]
        few = len(rows) < FEW
        texts = [self._processor.decode(r) for r in rows] if few else self._processor.decode(rows)
        return [printable_bytes(text) for text in texts] if self.byte_fallback else texts

    def pieces(self, ids: list[int]) -> list[str]:
        """The vocabulary's spelling of each id; a piece that begins a word starts with U+2581."""
        return [self._pieces[i] for i in ids]

    def all_pieces(self) -> list[str]:
        """The vocabulary in the order of its ids."""
        return self.pieces(list(range(self.vocab_size)))


class PairTokenizer(Tokenizer):
    """Two SentencePiece models and one vocabulary for both, as Marian's models have them.

    The first model splits sources, the second one joins translations. ``pieces`` is the vocabulary,
    this project's special pieces first. ``proto`` is a zip of the three.
    """

    def __init__(self, proto: bytes) -> None:
        self.proto = proto
        try:
            with zipfile.ZipFile(io.BytesIO(proto)) as content:
                # ``make`` stores the files as they are: a compressed one may be a bomb.
                if any(file.compress_type != zipfile.ZIP_STORED for file in content.infolist()):
                    raise ValueError("a compressed file")
                models = [content.read(name) for name in ("source.spm", "target.spm")]
                self._pieces: list[str] = parse_json(content.read("pieces.json"))
            if not all(isinstance(piece, str) for piece in self._pieces):
                raise ValueError("a piece is not a text")
            self._source, self._target = (_processor(model)[0] for model in models)
        except (zipfile.BadZipFile, KeyError, TypeError, ValueError, RuntimeError):
            raise ValueError("not a pair of SentencePiece models, or a damaged one") from None
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}

    @classmethod
    def make(cls, source: bytes, target: bytes, pieces: list[str]) -> "PairTokenizer":
        """From the contents of two ``.spm`` files and the vocabulary, special pieces first."""
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as content:
            vocabulary = json.dumps(pieces, ensure_ascii=False).encode()
            files = {"source.spm": source, "target.spm": target, "pieces.json": vocabulary}
            for name, data in files.items():
                content.writestr(zipfile.ZipInfo(name), data)  # without a date: equal bytes
        return cls(stream.getvalue())

    @property
    def vocab_size(self) -> int:
        return len(self._pieces)

    def encode(self, sentences: list[str]) -> list[list[int]]:
        return self._encode(self._source, sentences)

    def encode_target(self, sentences: list[str]) -> list[list[int]]:
        return self._encode(self._target, sentences)

    def _encode(self, processor: Any, sentences: list[str]) -> list[list[int]]:
        _check_list(sentences)
        rows = (processor.encode(_one_line(text), out_type=str) for text in sentences)
        return [[self._ids.get(piece, UNK) for piece in row] for row in rows]

    def sample(self, sentences: list[str], dropout: float, seed: int) -> list[list[int]]:
        raise ValueError("an imported tokenizer cannot leave merges out (bpe_dropout)")

    def decode(self, ids: list[list[int]]) -> list[str]:
        rows = [[self._pieces[i] for i in row if i not in SPECIAL_IDS] for row in ids]
        # The target's model leaves a piece that only the source's model has as it is spelled.
        return [self._target.decode_pieces(row).replace("▁", " ").strip() for row in rows]


def _check_list(sentences: list[str]) -> None:
    if isinstance(sentences, str):
        raise TypeError("encode wants a list of sentences: write [text] for one text")


def _processor(proto: bytes) -> tuple[sentencepiece.SentencePieceProcessor, list[str]]:
    """SentencePiece's processor and its pieces."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        check_charsmaps(proto)
        processor.LoadFromSerializedProto(proto)
        pieces = processor.id_to_piece(list(range(processor.vocab_size())))
    except (RuntimeError, ValueError):
        # A piece that is not UTF-8 fails, too.
        raise ValueError("not a SentencePiece model, or a damaged one") from None
    return processor, pieces


class UnfitSize(ValueError):
    """A vocabulary that the training text does not support; ``nearest`` is the nearest it does."""

    def __init__(self, message: str, nearest: int) -> None:
        super().__init__(message)
        self.nearest = nearest


def train(
    sentences: Iterable[str],
    vocab_size: int,
    exact: bool = True,
    byte_fallback: bool = False,
    split_digits: bool = False,
) -> Tokenizer:
    """Learn a BPE vocabulary of ``vocab_size`` pieces, special ids included.

    Every character of the data gets a piece; text is normalised by NFKC. With ``byte_fallback``
    each byte gets a piece, which characters that are rarer than one in RARE are spelled with, but
    for ``normalisation.alphabet``; and NFKC leaves ``normalisation.KEPT`` as they are. With
    ``split_digits`` no piece has two digits. BPE depends only on how often each word occurs. So
    this counts words while it reads, and needs no memory for the text.

    Raises UnfitSize when the data cannot support ``vocab_size``. If not ``exact``, the vocabulary
    has at most half as many pieces as there are different words: of more pieces, most would be in
    no sentence or in one.
    """
    check_int("tokenizer.vocab_size", vocab_size, most=MAX_VOCAB_SIZE)
    words: Counter[str] = Counter()
    for sentence in sentences:
        words.update(_one_line(sentence, byte_fallback).split(" "))
    for word in [word for word in words if not 0 < len(word) <= MAX_WORD]:
        del words[word]
    if not words:
        raise ValueError(
            "no text to train a tokenizer on: every line is empty, or one word of more than "
            f"{MAX_WORD:,} characters"
        )
    suitable = len(words) // 2
    if byte_fallback:
        _leave_to_bytes(words)
        suitable += BYTES + len(normalisation.alphabet())

    size = vocab_size if exact else max(len(SPECIAL_IDS), min(vocab_size, suitable))
    try:
        return _train(words, size, byte_fallback, split_digits)
    except UnfitSize as error:
        if exact or error.nearest > vocab_size:
            raise
        return _train(words, error.nearest, byte_fallback, split_digits)


def _leave_to_bytes(words: Counter[str]) -> None:
    """Take out the words with rare characters, and put in the alphabet."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for c in word:
            characters[c] += count
    alphabet, least = normalisation.alphabet(), characters.total() / RARE
    rare = {c for c, count in characters.items() if count < least} - alphabet
    for word in [word for word in words if not rare.isdisjoint(word)]:
        del words[word]
    words.update(sorted(alphabet))  # SentencePiece refuses a required character that never occurs


def _train(
    words: Counter[str], vocab_size: int, byte_fallback: bool, split_digits: bool
) -> Tokenizer:
    # SentencePiece writes into the model what it is told, default values too.
    settings: dict[str, Any] = {"split_digits": True} if split_digits else {}
    if not byte_fallback:
        settings["normalization_rule_name"] = "nfkc"
        return Tokenizer(_train_proto(words, vocab_size, settings))
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")  # closed: Windows opens no file twice
        rules.write_text(normalisation.rules(), "ascii")
        settings |= {
            "byte_fallback": True,
            "normalization_rule_tsv": str(rules),
            "required_chars": "".join(sorted(normalisation.alphabet())),
        }
        proto = _train_proto(words, vocab_size, settings)
    processor, _ = _processor(proto + _NO_PATH)
    return Tokenizer(processor.serialized_model_proto())


def _train_proto(words: Counter[str], vocab_size: int, settings: dict[str, Any]) -> bytes:
    """The content of a ``.model`` file. Raises UnfitSize or ValueError."""
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{word}\t{count}" for word, count in words.items()),
            input_format="tsv", model_writer=model, model_type="bpe", vocab_size=vocab_size,
            character_coverage=1.0, minloglevel=2,
            pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
            max_sentence_length=65536,  # bytes of a word
            num_threads=16,  # written into the model: a fixed number makes equal files everywhere
            **settings,
        )  # fmt: skip
    except RuntimeError as error:
        raise _explain(str(error), vocab_size) from None
    return model.getvalue()


# In scripts that need them, joiners make one letter or emoji of two.
_INVISIBLE = re.compile("[\u200c\u200d]+(?![\u0600-\U0010ffff])")


def _one_line(text: str, joiners: bool = False) -> str:
    """The text in one line of valid UTF-8.

    White space of any kind becomes a blank, a lone surrogate a question mark. Control and
    zero-width characters go, soft hyphens and byte order marks among them; with ``joiners`` those
    stay that join emoji or letters of Arabic and Indic scripts.
    """
    text = " ".join(text.split()).encode("utf-8", "replace").decode("utf-8")
    if not text.isprintable():
        kept = "\u200c\u200d" if joiners else ""
        text = "".join(c for c in text if c in kept or unicodedata.category(c) not in ("Cc", "Cf"))
        text = _INVISIBLE.sub("", text)
    return text


def printable_bytes(text: str) -> str:
    """A text that bytes spell, without what is none: parts of a character, control characters.

    SentencePiece decodes such parts to U+FFFD.
    """
    return _one_line(text.replace("\ufffd", ""), joiners=True)


def _explain(message: str, vocab_size: int) -> ValueError:
    """What to tell the user when SentencePiece's own check fails with ``message``."""
    setting = f"tokenizer.vocab_size={vocab_size}"
    if most := re.search(r"set it to a value <= (\d+)", message):
        return UnfitSize(
            f"{setting}: too large for this training text, which supports at most {most[1]}: "
            "set that or less, or leave it out",
            int(most[1]),
        )
    if least := re.search(r"required_chars\. \d+ vs (\d+)", message):
        return UnfitSize(
            f"{setting}: too small, the characters of this training text and the special pieces "
            f"alone are {least[1]}",
            int(least[1]),
        )
    if vocab_size < len(SPECIAL_IDS):
        return ValueError(f"{setting}: too small, the special pieces alone are {len(SPECIAL_IDS)}")
    return ValueError(f"{setting}: SentencePiece could not train this vocabulary: {message}")


def save(tokenizer: Tokenizer, path: str | os.PathLike[str]) -> None:
    """Write ``path`` (NAME.model) and a readable list of its pieces beside it, NAME.vocab.

    Each file appears whole or not at all. The model comes last: a process that waits for it finds
    both.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path.with_suffix(".vocab"), "\n".join(tokenizer.all_pieces()) + "\n")
    atomic_write(path, tokenizer.proto)
