"""The text of a file whose encoding nobody declared: UTF-8, or else the one that its bytes are most likely in."""

import logging
from pathlib import Path

from refinery.errors import RecordError
from refinery.text import without_mark

_logger = logging.getLogger(__name__)
_WESTERN = "cp1252"  # the most frequent one, where letters fit several encodings equally


def decoded(content: bytes, path: Path) -> str:
    """The text of a document. Names the encoding in the log if it is not UTF-8. Raises RecordError for content that is not text."""
    try:
        return without_mark(content).decode()
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes

    found = from_bytes(content)
    if (best := found.best()) is None:
        raise RecordError(f"{path}: is not UTF-8, nor text in another encoding that can be recognized. Save it as UTF-8, or remove it.")
    equal = (match for match in found if (match.chaos, match.coherence) == (best.chaos, best.coherence))
    best = next((match for match in equal if _WESTERN in match.could_be_from_charset), best)
    _logger.warning("%s: is not UTF-8, and is read as %s.", path, best.encoding)
    return str(best)
