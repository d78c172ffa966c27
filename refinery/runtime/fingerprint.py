"""Every hash of the project: names for content that change when it does, and keys of what is stored.

Many lie in files that a later run reads (stores, indexes, `run.json`, cards), so that none of them may change.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def file_fingerprint(*paths: Path) -> str:
    """16 hex digits of the bytes of files, in this order."""
    digest = running_fingerprint()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def text_fingerprint(texts: Iterable[str]) -> str:
    """16 hex digits of texts, in this order; where one ends and the next begins counts too."""
    digest = running_fingerprint()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()


def running_fingerprint(content: bytes = b"") -> "hashlib.blake2b":
    """For content that comes piece by piece: `update` it with bytes; its `hexdigest` has 16 digits."""
    return hashlib.blake2b(content, digest_size=8)


def store_key(content: bytes) -> bytes:
    """16 bytes that name what a store holds by everything it depends on."""
    return hashlib.blake2b(content, digest_size=16).digest()


def checksum(content: bytes) -> bytes:
    """8 bytes that tell whether a disk has changed the content."""
    return running_fingerprint(content).digest()


def id_number(text: str) -> int:
    """An id as a number below 2**64: for shards, and to find ids that are used twice without keeping them."""
    return int.from_bytes(checksum(text.encode()), "big")


def sha256(content: bytes | Path) -> bytes:
    """The SHA-256 of bytes, or of a file."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).digest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def short_sha256(content: bytes) -> str:
    """The first 12 hex digits of the SHA-256: how recipes and prompts are named in what they made."""
    return sha256(content).hex()[:12]
