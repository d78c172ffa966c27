"""Short names for content: 16 hex digits that change when it does."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def file_fingerprint(*paths: Path) -> str:
    """Of the bytes of files, in this order."""
    digest = hashlib.blake2b(digest_size=8)
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def text_fingerprint(texts: Iterable[str]) -> str:
    """Of texts, in this order; where one ends and the next begins counts too."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.hexdigest()
