"""A zip archive from a stranger, read within limits and written back with some parts replaced.

Nothing is unpacked to disk. No part is opened as an archive itself.
"""

import copy
import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

from mt.documents.document import DocumentError, size_text
from mt.utils.checks import printable

MAX_ENTRIES = 10_000
MAX_UNPACKED = 200 * 2**20  # bytes, all parts together
MAX_RATIO = 400  # unpacked bytes to packed ones, of a part above MIN_BOMB; tables have 150
MIN_BOMB = 10 * 2**20  # bytes
_CHUNK = 2**16  # bytes
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # all that Office formats allow

# What zipfile raises for damaged files: its own error, and what slips through from below.
_DAMAGE = (zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, ValueError)
_DAMAGE_TOO = (NotImplementedError, RuntimeError, OverflowError, IndexError, MemoryError)

_OLE = bytes.fromhex("D0CF11E0A1B11AE1")  # old Office files, and encrypted new ones
_PACKAGE = "EncryptedPackage".encode("utf-16-le")
_OTHER_FORMATS = {
    b"%PDF": "is a PDF file: save its text as .docx or .odt first",
    b"{\\rtf": "is an RTF file: save it as .docx or .odt first",
    b"<": "is an XML or HTML file, not an archive of parts: save it as .docx or .odt first",
}
UNREAD_FORMATS = {  # file name extension -> what to save the file as
    **dict.fromkeys((".doc", ".dot", ".rtf", ".pdf"), ".docx or .odt"),
    **dict.fromkeys((".ppt", ".pps"), ".pptx or .odp"),
    **dict.fromkeys((".xls", ".xlsx", ".xlsm", ".xlsb", ".xltx"), ".ods or .csv"),
    # Templates and files with macros
    **dict.fromkeys((".docm", ".dotx", ".dotm"), ".docx"),
    **dict.fromkeys((".pptm", ".potx", ".potm", ".ppsx", ".ppsm"), ".pptx"),
    **{f".{kind}{last}": f".od{last}" for kind in ("ot", "fod") for last in "tsp"},
    ".epub": ".html",
    ".odg": ".odp",
    ".pages": ".docx",
    **dict.fromkeys((".ass", ".ssa", ".sbv", ".sub"), ".srt or .vtt"),
    # Translated as lines these would be broken:
    **dict.fromkeys((".json", ".ndjson"), ".jsonl, an object in each line,"),
    **dict.fromkeys((".xliff", ".xlf", ".strings", ".properties", ".resx", ".arb", ".ts"), ".po"),
    **dict.fromkeys((".ipynb", ".rst", ".adoc", ".mdx", ".mdown"), ".md"),
    **dict.fromkeys((".php", ".shtml", ".xht"), ".html"),
    **dict.fromkeys((".xml", ".tmx", ".yaml", ".yml", ".toml", ".tex"), ".txt, text alone,"),
    **dict.fromkeys((".svg", ".ini"), ".txt, text alone,"),
}


def refuse_unread_format(extension: str) -> None:
    """Raise DocumentError for an extension, as ``.doc``, of a format that cannot be read."""
    if better := UNREAD_FORMATS.get(extension.lower()):
        raise DocumentError(f"is a {extension.lower()} file: save it as {better} first")


class Archive:
    """The parts of a zip archive. All of them are unpacked once at the start, and thus checked.

    Together they have at most ``max_unpacked`` bytes.

    Raises DocumentError for what is damaged, encrypted, too large, or no archive of an Office
    program.
    """

    def __init__(self, data: bytes, max_unpacked: int = MAX_UNPACKED) -> None:
        _check_kind(data)
        self.data = data
        self._max_unpacked = max_unpacked
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (*_DAMAGE, *_DAMAGE_TOO) as error:
            raise DocumentError(f"is damaged: {printable(str(error), 100)}") from None
        self._entries = {info.filename: info for info in self._zip.infolist()}
        self._check_entries()
        for name in self._entries:
            self._unpack(name, keep=False)

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def read(self, name: str) -> bytes:
        return self._unpack(name, keep=True)

    def replaced(self, parts: Mapping[str, bytes]) -> bytes:
        """The archive with other content for some parts; the others keep theirs.

        Order, names, times and compression of all parts stay.
        """
        if not parts:
            return self.data
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as archive:
            archive.comment = self._zip.comment
            for name, entry in self._entries.items():
                info = copy.copy(entry)
                info.extra = b""  # for its old sizes, among others
                archive.writestr(info, parts[name] if name in parts else self.read(name))
        return output.getvalue()

    def _check_entries(self) -> None:
        infos = self._zip.infolist()
        if len(infos) > MAX_ENTRIES:
            raise _too_many(len(infos))
        if len(infos) > len(self._entries):
            raise DocumentError("is damaged: two of its parts have the same name")
        total = sum(info.file_size for info in infos)
        if total > self._max_unpacked:
            most = size_text(self._max_unpacked)
            raise DocumentError(f"would unpack to {size_text(total)}, more than {most}")
        if sum(info.compress_size for info in infos) > len(self.data):
            raise DocumentError("is damaged: its parts overlap or go beyond its end")
        for info in infos:
            name = printable(info.filename, 60)
            if info.flag_bits & 0x41:  # encrypted, strongly encrypted
                raise DocumentError("is encrypted: save it without a password")
            if info.compress_type not in _METHODS:
                raise DocumentError(f"has the part {name!r} in a compression that is not allowed")
            # zipfile cuts a name at a zero byte.
            if info.orig_filename != info.filename or _is_outside(info.filename):
                raise DocumentError(f"has a part with the forbidden name {name!r}")
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DocumentError(f"has the part {name!r}, which is a link to another file")
            if info.file_size > max(MIN_BOMB, MAX_RATIO * info.compress_size):
                size = size_text(info.file_size)
                packed = f"{info.compress_size:,} bytes"
                raise DocumentError(f"would unpack {name!r} from {packed} to {size}: is a zip bomb")

    def _unpack(self, name: str, *, keep: bool) -> bytes:
        """The part's bytes or, if it is only to be checked, none.

        zipfile never gives more bytes than the size that was checked before, and fails at the
        checksum when there would be more.
        """
        content = io.BytesIO()
        length = 0
        try:
            with self._zip.open(self._entries[name]) as part:
                while chunk := part.read(_CHUNK):
                    length += len(chunk)
                    if keep:
                        content.write(chunk)
        except (*_DAMAGE, *_DAMAGE_TOO) as error:
            reason = printable(str(error), 100) or type(error).__name__
            raise DocumentError(f"is damaged: {printable(name, 60)!r}: {reason}") from None
        if length != self._entries[name].file_size:
            raise DocumentError(f"is damaged: {printable(name, 60)!r} is cut off")
        return content.getvalue()


def count_markup(content: bytes) -> int:
    """The signs of XML that can each become an object of some hundred bytes."""
    return content.count(b"<") + content.count(b"=")


def _check_kind(data: bytes) -> None:
    if not data:
        raise DocumentError("is empty")
    if data.startswith(_OLE):
        if _PACKAGE in data:
            raise DocumentError("is encrypted: save it without a password")
        raise DocumentError("is in an old Office format: save it as .docx, .pptx or .odt first")
    for magic, message in _OTHER_FORMATS.items():
        if data[:64].lstrip().startswith(magic):
            raise DocumentError(message)
    if not data.startswith(b"PK"):
        raise DocumentError("is not an Office document: it is no zip archive")
    if len(data) > MAX_UNPACKED:
        raise DocumentError(f"has {size_text(len(data))}, more than {size_text(MAX_UNPACKED)}")
    # Counted before zipfile makes an object of each. Every entry of the directory has this mark.
    if (entries := data.count(b"PK\x01\x02")) > 2 * MAX_ENTRIES:
        raise _too_many(entries)


def _too_many(entries: int) -> DocumentError:
    return DocumentError(f"has {entries:,} parts, more than {MAX_ENTRIES:,}")


def _is_outside(name: str) -> bool:
    return name.startswith("/") or "\\" in name or ".." in PurePosixPath(name).parts
