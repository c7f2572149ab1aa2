"""Checks the normalisation table of a SentencePiece model before the library uses it.

The library looks characters up in that table without checking where an entry leads. A crafted or
damaged table makes it read outside its memory, which ends the process or worse. The table is a trie
in a double array (Aoe 1989; darts-clone), followed by the texts that its leaves point to.
"""

from collections.abc import Iterator

import numpy as np

_NORMALIZERS, _CHARSMAP = (3, 5), 2  # fields of ModelProto and of NormalizerSpec
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers


def check_charsmaps(proto: bytes) -> None:
    """Check every normalisation table in the content of a ``.model`` file.

    Raises ValueError for one that leads outside itself, or for damaged protocol buffers.
    """
    for field, spec in _fields(proto):
        if field in _NORMALIZERS:
            for number, charsmap in _fields(spec):
                if number == _CHARSMAP and charsmap:
                    _check(charsmap)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The numbers and contents of a message's fields that hold bytes."""
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        field, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, position = _varint(message, position)
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED32, _FIXED64):
            size = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError("a field of unknown type")
        if size > len(message) - position:
            raise ValueError("a field longer than its message")
        if kind == _BYTES:
            yield field, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the position after it."""
    number = 0
    for i, byte in enumerate(message[position : position + 10]):
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return number, position + i + 1
    raise ValueError("a number without end")


def _check(charsmap: bytes) -> None:
    """A 4-byte size of the trie, its 4-byte units, and texts that each end in a zero byte."""
    size = int.from_bytes(charsmap[:4], "little")
    texts = charsmap[4 + size :]
    if size == 0 or size % 4 or len(charsmap) < 4 + size or not texts.endswith(b"\0"):
        raise ValueError("a normalisation table that is cut short")
    units = np.frombuffer(charsmap, "<u4", size // 4, 4).astype(np.int64)
    # From a unit the look-up goes to its children, one for each byte: they differ in eight bits.
    offsets = (units >> 10) << ((units & 1 << 9) >> 6)
    children = np.arange(len(units)) ^ offsets
    inner = units < 2**31  # from the others, the leaves, no look-up continues
    inner[0] = True  # every look-up begins there
    if (children[inner] | 0xFF).max(initial=0) >= len(units):
        raise ValueError("a normalisation table that leads outside itself")
    has_leaf = inner & (units & 1 << 8 != 0)
    if (units[children[has_leaf]] & 2**31 - 1).max(initial=0) >= len(texts):
        raise ValueError("a normalisation table that leads outside its texts")
