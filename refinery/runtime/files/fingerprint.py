"""Every hash of the project: fingerprints of content, and keys of stored data.

Many are in files that later runs read (stores, indexes, `run.json`, cards), so none of these functions may change.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_LARGE = 64 * 2**20  # bytes; a larger file is read only once per process while it is unchanged


def file_fingerprint(*paths: Path) -> str:
    """16 hex digits of the bytes of files, in this order."""
    digest = running_fingerprint()
    for path in paths:
        seen = path.stat()
        digest.update(_known_digest(path, seen.st_size, seen.st_mtime_ns) if seen.st_size >= _LARGE else _digest(path))
    return digest.hexdigest()


@cache
def _known_digest(path: Path, size: int, changed: int) -> bytes:
    return _digest(path)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def text_fingerprint(texts: Iterable[str]) -> str:
    """16 hex digits of texts, in this order. The boundaries between the texts matter too."""
    digest = running_fingerprint()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def running_fingerprint(content: bytes = b"") -> "hashlib.blake2b":
    """A hash of content that arrives in pieces: call `update` with bytes. Its `hexdigest` has 16 digits."""
    return hashlib.blake2b(content, digest_size=8)


def store_key(content: bytes) -> bytes:
    """A 16-byte key of a stored value, from everything that the value depends on."""
    return hashlib.blake2b(content, digest_size=16).digest()


def checksum(content: bytes) -> bytes:
    """An 8-byte checksum, which shows whether a disk has damaged the content."""
    return hashlib.blake2b(content, digest_size=8).digest()


def id_number(text: str) -> int:
    """An id as a number below 2**64, to assign shards and to find repeated ids without storing them."""
    return int.from_bytes(checksum(text.encode()), "big")


def sha256(content: bytes | Path) -> bytes:
    """The SHA-256 of bytes, or of a file."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def short_sha256(content: bytes) -> str:
    """The first 12 hex digits of the SHA-256, which identify recipes and prompts in their outputs."""
    return sha256(content).hex()[:12]
