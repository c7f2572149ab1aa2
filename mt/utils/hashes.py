"""Hashes of files, by which reports and records name them."""

import hashlib
import os


def sha256_of(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file of any size, in hexadecimal. Raises OSError when it cannot be read."""
    sha = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(2**20):
            sha.update(block)
    return sha.hexdigest()
