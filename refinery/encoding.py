"""How files that should be UTF-8 begin, and what is wrong with those that are not."""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE


def without_mark(content: bytes) -> bytes:
    """Without the byte order mark that some editors put in front."""
    return content.removeprefix(BOM_UTF8)


def not_utf8(content: bytes, error: UnicodeDecodeError, *, of: str = "") -> str:
    """What is wrong with bytes that are no UTF-8, and what to do."""
    found = "is UTF-16" if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else f"not UTF-8 at byte {error.start}{of}"
    return f"{found}. Save the file as UTF-8."
