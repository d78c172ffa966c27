"""Exchange two folders in one step, so that a stop leaves one or the other in place and never a mix."""

import ctypes
import os
from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # of renameat2(2)
_BEFORE = ".before"


def exchange(first: Path, second: Path) -> None:
    """Give each of two folders of one file system the other's name.

    Linux does this in one step. Elsewhere it takes three renames; a stop between them is repaired by `restore`.
    """
    if _exchanged_at_once(first, second):
        return
    third = first.with_name(first.name + _BEFORE)
    first.rename(third)
    second.rename(first)
    third.rename(second)


def restore(folder: Path) -> None:
    """Put a folder back in place that `exchange` had moved aside when it was stopped."""
    before = folder.with_name(folder.name + _BEFORE)
    if before.exists() and not folder.exists():
        before.rename(folder)


def _exchanged_at_once(first: Path, second: Path) -> bool:
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _RENAME_EXCHANGE) == 0
